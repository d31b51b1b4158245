"""The page in a real browser on the real server: a tiny model predicts, shows its attention, is taught and undone."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.browser import Visit, visit
from helpers.photos import bird, encoded, zipped
from helpers.processes import LIMIT
from PIL import Image
from playwright.sync_api import Browser, FilePayload, Page, expect

from gcab.classifier.teaching import teach

pytestmark = [pytest.mark.repeats, pytest.mark.usefixtures("forked_interpreters")]

TOKEN = "a-token-for-the-tests-alone"
HUES = {"kingfisher": 150, "robin": 5, "bullfinch": 240, "goldfinch": 35}
HOSTILE = "<b>wren"


def photos_of(name: str, count: int) -> list[Image.Image]:
    return [bird(seed, 48, 40, HUES.get(name, 90)) for seed in range(count)]


def photo(name: str, width: int = 300) -> FilePayload:
    picture = encoded(bird(77, width, 200, HUES[name]), "JPEG")
    return {"name": f"{name}.jpg", "mimeType": "image/jpeg", "buffer": picture}


@contextmanager
def served(model: Path) -> Iterator[str]:
    """`gcab serve` as a person starts it, on a free port."""
    command = [sys.executable, "-m", "gcab", "serve", str(model), "--port", "0", "--allow-teach", "--device", "cpu"]
    environment = os.environ | {"GCAB_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"http://[\w.:]+\d", said)
            assert found, said
            yield found[0]
        finally:
            process.terminate()
            process.wait(LIMIT)


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Visit]:
    photos, model = tmp_path / "photos", tmp_path / "birds.gcab"
    for name in ("kingfisher", "robin", "bullfinch"):
        (photos / name).mkdir(parents=True)
        for index, image in enumerate(photos_of(name, 12)):
            image.save(photos / name / f"{index}.png")
    teach(model, photos, encoder="tiny", size=16, epochs=6, device="cpu", settings={"encoder.width": "32"})
    with served(model) as address, visit(browser, address) as visited:
        yield visited


def sample(page: Page) -> str:
    drawn: str = page.locator("#answer-picture").evaluate("canvas => canvas.toDataURL()")
    return drawn


def test_predict_attention_teach_and_undo(shown: Visit) -> None:
    page = shown.page
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#model-line")).to_have_text("3 classes in 1 task · generation 1")

    unreadable: FilePayload = {"name": "notes.jpg", "mimeType": "image/jpeg", "buffer": b"not a picture"}
    page.locator("#photo-input").set_input_files([photo("robin"), unreadable])
    expect(page.locator("#answer-class")).to_have_text(re.compile("kingfisher|robin|bullfinch"))
    expect(page.locator("#answer-top li")).to_have_count(3)
    expect(page.locator("#answer-tasks li")).to_have_count(1)
    expect(page.locator("#answer-picture")).to_have_attribute("aria-busy", "false")
    shown.picture("real-predict")
    page.locator(".photo").nth(1).click()
    expect(page.locator("#answer-trouble")).to_contain_text("notes.jpg is not an image that can be read")

    shown.open_tab("Teach")
    expect(page.get_by_role("button", name="Undo…")).to_be_disabled()
    archive = zipped(
        {
            f"{name}/{index}.png": encoded(image)
            for name in ("goldfinch", HOSTILE)
            for index, image in enumerate(photos_of(name, 12))
        }
    )
    upload: FilePayload = {"name": "week2.zip", "mimeType": "application/zip", "buffer": archive}
    page.locator("#archive-input").set_input_files(upload)
    expect(page.locator("#job-progress")).to_be_visible()
    expect(page.locator("#job-title")).to_have_text("Learned 2 new classes")
    for shown_number in ("#accuracy-before", "#accuracy-after", "#accuracy-now"):
        expect(page.locator(shown_number)).to_have_text(re.compile(r"\d\.\d %"))
    assert len((page.locator("#loss-line polyline").get_attribute("points") or "").split()) >= 2
    shown.picture("real-teach")
    shown.open_tab("Model")
    expect(page.locator("#model-line")).to_have_text("5 classes in 2 tasks · generation 2")
    expect(page.locator("#model-tasks").get_by_text(HOSTILE, exact=True)).to_be_visible()
    expect(page.locator("#model-capacity li")).to_have_count(2)
    shown.picture("real-model")
    shown.open_tab("Report")
    expect(page.locator("#report")).to_contain_text("5 classes, learned in 2 lessons")
    expect(page.locator("#report")).to_contain_text(HOSTILE)
    expect(page.locator("#report img").first).to_be_visible()
    shown.picture("real-report")

    shown.open_tab("Predict")
    page.locator("#photo-input").set_input_files(photo("goldfinch"))
    expect(page.locator("#answer-tasks li")).to_have_count(2)
    expect(page.locator("#answer-picture")).to_have_attribute("aria-busy", "false")
    strength, told = page.get_by_label("Strength of the map"), page.locator("#map-flat")
    strength.fill("0")
    bare = sample(page)
    strength.fill("60")
    for task in ("Task 1", "Task 2"):
        label = next(option for option in options(page) if option.startswith(task))
        page.get_by_role("combobox", name="Where it looked").select_option(label=label)
        assert (sample(page) == bare) == ("everywhere alike" in (told.text_content() or ""))
    shown.picture("real-attention")

    shown.open_tab("Teach")
    page.get_by_role("button", name="Undo…").click()
    page.get_by_role("dialog").get_by_role("button", name="Undo").click()
    expect(page.locator("#model-line")).to_have_text("3 classes in 1 task · generation 1")
    expect(page.get_by_role("button", name="Undo…")).to_be_disabled()
    shown.open_tab("Model")
    expect(page.locator("#model-tasks details")).to_have_count(1)
    shown.open_tab("Predict")
    expect(page.locator("#answer-stale")).to_be_visible()


def options(page: Page) -> list[str]:
    return page.locator("#map-task option").all_text_contents()
