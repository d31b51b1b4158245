"""The page in a real browser: its report, photos that come without a zip, answers that are corrected, flat maps."""

import io
import zipfile
from typing import Any

import pytest
from helpers.browser import Visit, visit
from helpers.fake_server import HOSTILE, Fake, lesson, running, task
from helpers.photos import bird, encoded
from playwright.sync_api import Browser, FilePayload, Page, expect

from gcab.report.model_page import model_content

NAMES = ["blackbird", "great tit", "robin", "kingfisher", HOSTILE]
OVERFLOWING = """() => [...document.querySelector("#report").shadowRoot.querySelectorAll("section, p, img")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.outerHTML.slice(0, 80))"""
COLOURS = """() => {
    const section = document.querySelector("#report").shadowRoot.querySelector("section:not(.cards)");
    return [getComputedStyle(section).backgroundColor, getComputedStyle(section).color];
}"""
PIXELS = "canvas => canvas.toDataURL()"


def facts() -> dict[str, Any]:
    """What a model of two lessons knows about itself."""
    about = {"images": 60, "held_out": 12, "when": "2026-01-02T10:00:00", "again": []}
    tasks = [
        {"index": 1, "names": NAMES[:3], "classes": 3, "accuracy": 93.4, "now": 61.7, **about},
        {"index": 2, "names": NAMES[3:], "classes": 2, "accuracy": 88.1, "now": 88.1, **about},
    ]
    share = [[80.0 if row == column else 5.0 for column in range(5)] for row in range(5)]
    curve = [{"images": 10, "confidence": sure, "accuracy": sure - 0.05} for sure in (0.3, 0.6, 0.9)]
    events = [{"what": "learned", "lesson": task["index"], "text": "", **task} for task in tasks]
    return {
        "model": "/elsewhere/birds.gcab",
        "method": "gcab",
        "classes": 5,
        "tasks": tasks,
        "history": events,
        "calibration": {"images": 24, "expected_calibration_error": 0.05, "curve": curve},
        "confusion": share,
        "parts": [{"part": "eye", "bytes": 33_562_624, "knows": "eye", "alone": 80.0}],
        "bytes": {"model": 34_000_000, "folder": 68_000_000},
        "images": {"count": 0, "bytes": 0},
    }


@pytest.fixture(scope="module")
def content() -> str:
    return model_content(facts())


def photo(name: str) -> FilePayload:
    return {"name": name, "mimeType": "image/png", "buffer": encoded(bird(0))}


def taught(fake: Fake) -> list[str]:
    """The files of the zip that was sent, in a form."""
    start, end = fake.archive.index(b"PK\x03\x04"), fake.archive.rindex(b"PK\x05\x06") + 22
    with zipfile.ZipFile(io.BytesIO(fake.archive[start:end])) as archive:
        assert archive.testzip() is None
        assert all(archive.read(name) == encoded(bird(0)) for name in archive.namelist())
        return archive.namelist()


@pytest.mark.repeats
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_the_report_is_shown_in_light_and_dark_wide_and_narrow(
    browser: Browser, content: str, width: int, dark: bool
) -> None:
    fake = Fake(content=content)
    with running(fake) as address, visit(browser, address, width=width, dark=dark) as shown:
        page, report = shown.page, shown.page.locator("#report")
        assert "GET /report" not in fake.asked  # it takes time to write: only who looks waits
        shown.open_tab("Report")
        for words in ("about 72 % of new photos", "about 62 % now", "33,562,624", "80.0 %", HOSTILE):
            expect(report).to_contain_text(words)
        expect(report.locator("img")).to_have_count(3)
        assert all(
            image.evaluate("image => image.decode().then(() => image.naturalWidth > 0)")
            for image in report.locator("img").all()
        )
        page.wait_for_function("() => document.querySelector('#report').shadowRoot.styleSheets.length === 1")
        shown.picture(f"report-{width}-{'dark' if dark else 'light'}")
        assert page.evaluate(OVERFLOWING) == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        back, text = ("rgb(30, 35, 41)", "rgb(232, 234, 237)") if dark else ("rgb(255, 255, 255)", "rgb(27, 31, 36)")
        assert page.evaluate(COLOURS) == [back, text]


def test_the_report_follows_the_model(browser: Browser) -> None:
    fake = Fake(content="<p>First.</p>")
    with running(fake) as address, visit(browser, address, "/#report") as shown:
        report = shown.page.locator("#report")
        expect(report).to_contain_text("First.")
        shown.open_tab("Model")
        shown.open_tab("Report")
        assert sum(asked == "GET /report" for asked in fake.asked) == 1
        fake.content = "<p>Second.</p>"
        shown.open_tab("Teach")
        shown.page.get_by_role("button", name="Undo…").click()
        shown.page.get_by_role("dialog").get_by_role("button", name="Undo").click()
        expect(shown.page.locator("#model-line")).to_contain_text("in 2 tasks")
        shown.open_tab("Report")
        expect(report).to_contain_text("Second.")
        expect(report).not_to_contain_text("First.")


def choose(page: Page, label: str, *files: FilePayload) -> None:
    page.get_by_label("Class", exact=True).fill(label)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose its photos").click()
    chooser.value.set_files(list(files))


def test_loose_photos_are_taught_class_by_class(shown: Visit, fake: Fake) -> None:
    page, teach = shown.page, shown.page.get_by_role("button", name="Teach these photos")
    shown.open_tab("Teach")
    expect(teach).to_be_disabled()
    page.get_by_role("button", name="Choose its photos").click()
    expect(page.locator("#teach-trouble")).to_contain_text("Name the class first")
    choose(page, "bullfinch", photo("1.png"), photo("2.png"))
    choose(page, "bullfinch", photo("1.PNG"))
    choose(page, "zaunkönig", photo("3.png"))
    choose(page, "mistake", photo("4.png"))
    page.get_by_role("button", name="Remove the photos of mistake").click()
    expect(page.locator("#loose-list li")).to_contain_text(["bullfinch 3 photos", "zaunkönig 1 photo"])
    shown.picture("teach-loose")
    fake.script = lesson(epochs=1)
    teach.click()
    expect(page.locator("#job-title")).to_have_text("Learned 2 new classes")
    expect(page.locator("#loose-list li")).to_have_count(0)
    assert taught(fake) == ["bullfinch/1.png", "bullfinch/2.png", "bullfinch/2-1.PNG", "zaunkönig/3.png"]


def test_a_wrong_answer_is_corrected_and_taught(shown: Visit, fake: Fake) -> None:
    page = shown.page
    page.locator("#photo-input").set_input_files([photo("garden.png")])
    expect(page.locator("#answer-class")).to_have_text("kingfisher")
    expect(page.locator("#known-classes option")).to_have_count(25)
    page.get_by_role("button", name="Correct").click()
    expect(page.locator("#answer-corrected")).to_contain_text("Name the class first")
    page.get_by_label("Wrong? It shows").fill("robin")
    shown.picture("predict-correct")
    page.keyboard.press("Enter")
    expect(page.locator("#answer-corrected")).to_have_text("It waits in the Teach tab, as robin.")
    expect(page.locator("#answer-wrong")).to_be_hidden()
    shown.open_tab("Teach")
    fake.refusal = "class 'robin' was learned before: teach only new classes."
    page.get_by_role("button", name="Teach these photos").click()
    expect(page.locator("#teach-trouble")).to_contain_text("teach only new classes")
    expect(page.locator("#loose-list li")).to_contain_text(["robin 1 photo"])  # refused, it waits on
    fake.refusal, fake.script = None, lesson(epochs=1)
    page.get_by_role("button", name="Teach these photos").click()
    expect(page.locator("#job-title")).to_have_text("Learned 2 new classes")
    assert taught(fake) == ["robin/garden.png"]


def test_a_lesson_of_more_photos_is_told_by_the_classes_it_was_about(browser: Browser) -> None:
    fake = Fake(job=lesson(epochs=1)[-1])
    fake.tasks.append(task(4, [], 81.0, again=["robin", "great tit"]))
    for event in fake.job["events"]:
        event.update(
            {"start": {"classes": [], "again": ["robin"]}, "done": {"digest": fake.digest}}.get(event["event"], {})
        )
    with running(fake) as address, visit(browser, address) as shown:
        page = shown.page
        page.locator("#photo-input").set_input_files([photo("garden.png")])
        expect(page.locator("#answer-tasks li")).to_have_count(3)
        shown.open_tab("Model")
        expect(page.locator("#model-tasks summary").last).to_have_text(
            "Task 4more of robin, great tit · 81.0 % right when learned (24 held out)"
        )
        shown.open_tab("Teach")
        expect(page.locator("#undo-line")).to_have_text(
            "The model goes back to before task 4 (more of robin, great tit)."
        )
        expect(page.locator("#job-title")).to_have_text("Learned more of known classes")
        expect(page.locator("#job-detail")).to_contain_text("more of robin")


def test_nothing_is_corrected_where_nothing_is_taught(browser: Browser) -> None:
    with running(Fake(can_teach=False)) as address, visit(browser, address) as shown:
        shown.page.locator("#photo-input").set_input_files([photo("garden.png")])
        expect(shown.page.locator("#answer-class")).to_have_text("kingfisher")
        expect(shown.page.locator("#answer-wrong")).to_be_hidden()


def test_a_flat_map_is_not_drawn(shown: Visit) -> None:
    page, canvas = shown.page, shown.page.locator("#answer-picture")
    page.locator("#photo-input").set_input_files([photo("flat.png")])
    expect(page.locator("#map-flat")).to_contain_text("everywhere alike (93 to 100 % of the peak)")
    expect(page.locator("#map-verdict")).to_have_text("The map is the network’s. In this model the eye alone decides.")
    expect(page.locator("#map-legend")).to_be_hidden()
    expect(canvas).to_have_attribute("aria-busy", "false")
    shown.picture("predict-flat")
    with_map = canvas.evaluate(PIXELS)
    page.get_by_label("Strength of the map").fill("0")
    assert canvas.evaluate(PIXELS) == with_map
