"""One task from its first epoch to its end, the same for a run and for a lesson."""

from collections.abc import Callable
from typing import Any

from gcab.data.tasks import OnProgress, Task, TaskImages, ignore
from gcab.methods.method import grow
from gcab.training.trainer import Epoch, HalfwayTask, Trainer, finish


class TaskTraining:
    """Trains a method on one task; with `state` in a checkpoint it resumes, bit for bit."""

    def __init__(self, trainer: Trainer, task: Task, train: TaskImages, held_out: TaskImages | None) -> None:
        self.trainer, self.method = trainer, trainer.method
        self.task, self.train, self.held_out = task, train, held_out
        self.halfway: HalfwayTask | None = None

    def begin(self) -> None:
        """Let the method grow; also before `resume`, which needs the method in the shape of this task."""
        grow(self.method, self.task, self.trainer.seed)
        self.method.begin_task(self.task)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint after an epoch."""
        optimiser = self.trainer.optimiser
        assert optimiser is not None, "no epoch has been trained"
        return {"method": dict(self.method.state_dict()), "optimiser": optimiser.state_dict()}

    def resume(self, epochs: int, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint after so many epochs."""
        self.method.load_state_dict(state["method"], strict=True)
        self.halfway = HalfwayTask(epochs, state["optimiser"])

    def run(self, after_epoch: Callable[[Epoch], bool | None]) -> None:
        """Train the remaining epochs; the callback stops early by returning true."""
        self.trainer.fit(self.task, self.train.of(self.task.labels), after_epoch, self.halfway)

    def end(self, watch: OnProgress = ignore) -> None:
        """Call the method's `end_task`, its last sight of the images."""
        trainer = self.trainer
        finish(self.method, self.task, self.train, trainer.seed, watch, self.held_out, trainer.augment)
