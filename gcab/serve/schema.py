"""The answers of the API as OpenAPI describes them; tests hold the real answers against these."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """No answer has a field that is not described here."""

    model_config = ConfigDict(extra="forbid")


class Failure(Shape):
    error: str = Field(description="One sentence: what is wrong and what to do.")


class Health(Shape):
    status: Literal["ok"]


class ServedClass(Shape):
    name: str
    task: int


class ServedTask(Shape):
    index: int
    classes: list[str]
    again: list[str] = Field(description="Classes of earlier tasks that there were more photos of.")
    accuracy: float | None = Field(description="Per cent of held-out photos, among all classes, when it was learned.")
    held_out: int
    now: float | None = Field(
        description="The same as expected now; measured only where all classes of the newest task had held-out photos."
    )


class Bounds(Shape):
    body_bytes: int = Field(description="Of one request to /predict.")
    archive_bytes: int = Field(description="Of one request to /teach.")
    pixels: int = Field(description="Of one image.")
    batch: int = Field(description="Images in one request.")


class Model(Shape):
    name: str
    version: str
    method: str
    generation: int
    digest: str = Field(description="Names these very weights; after an undo, generations come again.")
    image_size: int | tuple[int, int] = Field(description="Pixels a side, or height and width.")
    classes: list[ServedClass]
    tasks: list[ServedTask]
    capacity: dict[str, float] = Field(description="Share of each gate's units in use.")
    bytes: int
    expected_accuracy: float | None = Field(description="Per cent of new photos of all classes: an estimate.")
    warnings: list[str] = Field(description="What nobody should overlook.")
    verdict: str | None = Field(description="Who decides, network or eye; null where that was not tried.")
    stores_images: bool = Field(description="Whether photos that it learns from stay in the model.")
    can_undo: bool
    undoes: Literal["task", "distillation", "forgetting", "renaming", "joining"] | None = Field(
        description="What an undo would take back."
    )
    can_teach: bool
    limits: Bounds


class Report(Shape):
    digest: str = Field(description="Of the model that it is about.")
    content: str = Field(description="HTML as `gcab report` writes it, without head and style.")


class Guess(Shape):
    class_: str = Field(alias="class")
    task: int
    probability: float


class TaskShare(Shape):
    task: int
    probability: float


class Attention(Shape):
    side: int = Field(description="Values in a row.")
    maps: list[list[float]] = Field(description="For each pass one value in 0..1 for each patch, row by row.")


class Prediction(Shape):
    file: str
    top: list[Guess]
    unknown: float | None = Field(
        description="Share of held-out known images that look more familiar; null where fewer than 20 were held out."
    )
    flagged: bool
    tasks: list[TaskShare]
    answered_by: int
    attention: Attention | None = None


class Unreadable(Shape):
    file: str
    error: str


class Answering(Shape):
    generation: int
    digest: str


class Predictions(Shape):
    model: Answering
    predictions: list[Prediction | Unreadable]


class Job(Shape):
    job: str


class Teaching(Shape):
    state: Literal["idle", "running", "done", "failed"]
    events: list[dict[str, Any]] = Field(description="The last 200 lines of the lesson's progress.")
    accuracy_before: float | None = Field(description="Expected over all classes, in per cent: an estimate.")
    accuracy_after: float | None
    error: str | None
