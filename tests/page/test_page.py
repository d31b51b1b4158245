"""The page in a real browser, against canned answers: it shows what the server says, by mouse, keyboard and phone."""

import pytest
from helpers.browser import Visit, visit
from helpers.fake_server import HOSTILE, PAGE, Fake, lesson, running, task
from helpers.photos import bird, encoded, zipped
from playwright.sync_api import Browser, FilePayload, Page, expect

PIXELS = """canvas => {
    const copy = new OffscreenCanvas(640, 640).getContext("2d"); // Chromium warns of reading one canvas again and again
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, 640, 640);
    const middles = Array.from({ length: 16 }, (_, place) => 20 + 40 * place);
    return middles.flatMap((y) => middles.map((x) => Array.from(data.slice(4 * (640 * y + x), 4 * (640 * y + x) + 3))));
}"""
ZIP: FilePayload = {
    "name": "week2.zip",
    "mimeType": "application/zip",
    "buffer": zipped({"wren/0.png": encoded(bird(1))}),
}


def photo(name: str = "garden.png", seed: int = 0) -> FilePayload:
    return {"name": name, "mimeType": "image/png", "buffer": encoded(bird(seed))}


def choose(page: Page, *files: FilePayload) -> None:
    page.locator("#photo-input").set_input_files(list(files))


def answered(page: Page, name: str = "garden.png") -> None:
    choose(page, photo(name))
    expect(page.locator("#answer-body")).to_be_visible()
    expect(page.locator("#answer-picture")).to_have_attribute("aria-busy", "false")


def canvas(page: Page) -> list[list[int]]:
    """The colours of the picture at 16 x 16 places, row by row."""
    colours: list[list[int]] = page.locator("#answer-picture").evaluate(PIXELS)
    return colours


def drop(page: Page, name: str, kind: str, content: str = "x") -> None:
    """What a browser does when a file is let go over the page."""
    page.evaluate(
        """([name, type, content]) => {
            const data = new DataTransfer();
            data.items.add(new File([content], name, { type }));
            const options = { dataTransfer: data, bubbles: true, cancelable: true };
            for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, options));
        }""",
        [name, kind, content],
    )


def test_a_photo_gets_its_classes_tasks_and_shares(shown: Visit) -> None:
    shown.picture("predict-empty")
    answered(shown.page)
    bars = shown.page.locator("#answer-top li")
    expect(shown.page.locator("#answer-class")).to_have_text("kingfisher")
    expect(shown.page.locator("#answer-share")).to_have_text("87.4 %")
    expect(bars).to_have_count(5)
    expect(bars.nth(2)).to_contain_text("robin")
    expect(bars.nth(2)).to_contain_text("task 1")
    expect(bars.nth(2)).to_contain_text("3.0 %")
    shown.page.wait_for_timeout(400)  # the bars grow
    widths = [
        bar.evaluate("bar => bar.clientWidth / bar.parentElement.clientWidth") for bar in bars.locator(".fill").all()
    ]
    assert widths == pytest.approx([0.874, 0.081, 0.03, 0.01, 0.005], abs=0.01)
    tasks = shown.page.locator("#answer-tasks li")
    expect(tasks).to_have_count(3)
    expect(tasks.nth(1)).to_contain_text("answered")
    expect(tasks.nth(1)).to_contain_text("95.5 %")
    expect(shown.page.locator("#answer-flag")).to_be_hidden()
    expect(shown.page.get_by_role("status").first).to_have_text("garden.png: kingfisher, 87.4 %")
    shown.picture("predict")


def test_a_stranger_is_flagged(shown: Visit) -> None:
    answered(shown.page, "strange.png")
    expect(shown.page.locator("#answer-flag")).to_contain_text("None of these?")
    expect(shown.page.locator("#answer-flag")).to_contain_text("98.2 %")
    expect(shown.page.locator(".photo .caption")).to_have_text("kingfisher?")
    shown.picture("predict-flagged")


def test_a_model_with_too_few_held_out_photos_says_so(shown: Visit) -> None:
    answered(shown.page, "unscored.png")
    expect(shown.page.locator("#answer-unknown")).to_have_text("Too few photos were held out to tell an unknown thing.")
    expect(shown.page.locator("#answer-flag")).to_be_hidden()


def test_a_model_that_was_taught_elsewhere_is_noticed_with_the_next_answer(shown: Visit, fake: Fake) -> None:
    page = shown.page
    answered(page, "first.png")
    # Undone and taught something else: the generation has the same number as before.
    fake.tasks = [*fake.tasks[:-1], task(3, ["heron", "stork"], 80.0)]
    answered(page, "second.png")
    expect(page.locator("#model-line")).to_contain_text("7 classes in 3 tasks")
    expect(page.locator("#answer-stale")).to_be_hidden()
    page.get_by_role("button", name="first.png").click()
    expect(page.locator("#answer-stale")).to_contain_text("The model has changed")


def test_the_map_follows_the_task_and_the_slider(shown: Visit) -> None:
    page = shown.page
    answered(page)
    select, slider = page.get_by_role("combobox", name="Where it looked"), page.get_by_label("Strength of the map")
    expect(select.locator("option:checked")).to_have_text("Task 2 (answered)")
    second = canvas(page)
    select.select_option(label="Task 1")
    first = canvas(page)
    select.select_option(label="Task 3")
    third = canvas(page)
    assert first != second != third != first

    top_left, bottom_right = 16 * 3 + 3, 16 * 13 + 13  # the patches the canned maps of tasks 1 and 3 look at
    assert sum(first[top_left]) > sum(third[top_left]) + 60
    assert sum(third[bottom_right]) > sum(first[bottom_right]) + 60
    slider.focus()
    page.keyboard.press("Home")
    bare = canvas(page)
    select.select_option(label="Task 1")
    assert canvas(page) == bare  # no strength, no map


def test_the_picture_is_the_centre_square(shown: Visit) -> None:
    stripes = bird(width=300, height=100)
    for left, colour in ((0, (255, 0, 0)), (100, (0, 255, 0)), (200, (0, 0, 255))):
        stripes.paste(colour, (left, 0, left + 100, 100))
    choose(shown.page, {"name": "stripes.png", "mimeType": "image/png", "buffer": encoded(stripes)})
    expect(shown.page.locator("#answer-body")).to_be_visible()
    expect(shown.page.locator("#answer-picture")).to_have_attribute("aria-busy", "false")
    shown.page.get_by_label("Strength of the map").fill("0")
    assert {tuple(colour) for colour in canvas(shown.page)} == {(0, 255, 0)}


def test_several_photos_each_keep_their_answer_and_the_servers_sentence_is_shown(shown: Visit) -> None:
    page = shown.page
    choose(page, photo("one.png", 1), photo("damaged.png", 2), photo("strange.png", 3))
    expect(page.locator(".photo .caption")).to_have_text(["kingfisher", "no answer", "kingfisher?"])
    expect(page.locator("#answer-file")).to_have_text("one.png")
    page.locator(".photo").nth(1).click()
    expect(page.locator("#answer-trouble")).to_contain_text("damaged.png is damaged: save it again as PNG.")
    expect(page.locator("#answer-trouble button")).to_be_hidden()  # asking again would not mend the photo
    expect(page.locator("#answer-body")).to_be_hidden()
    expect(page.locator("#map-controls")).to_be_hidden()
    shown.picture("predict-unreadable")
    page.locator(".photo").nth(2).click()
    expect(page.locator("#answer-flag")).to_be_visible()
    expect(page.locator(".photo[aria-current=true] img")).to_have_attribute("alt", "strange.png")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".photo")).to_have_count(0)
    expect(page.locator("#answer")).to_be_hidden()


def test_photos_come_by_drop_and_by_paste_and_what_the_browser_cannot_show_still_gets_an_answer(shown: Visit) -> None:
    page = shown.page
    drop(page, "old.tiff", "image/tiff")
    expect(page.locator("#answer-class")).to_have_text("kingfisher")
    expect(page.locator("#answer-blind")).to_be_visible()
    expect(page.locator(".no-picture")).to_have_text("old.tiff")
    shown.open_tab("Model")
    page.evaluate(
        """() => {
            const data = new DataTransfer();
            data.items.add(new File(["x"], "pasted.png", { type: "image/png" }));
            document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
        }"""
    )
    expect(page.locator("#answer-file")).to_have_text("pasted.png")
    expect(page.locator("#panel-predict")).to_be_visible()


def test_a_photo_above_the_limit_is_not_sent(shown: Visit, fake: Fake) -> None:
    choose(shown.page, {"name": "huge.png", "mimeType": "image/png", "buffer": bytes(1_200_000)})
    expect(shown.page.locator("#answer-trouble")).to_contain_text(
        "huge.png has 1.2 MB; this server takes at most 1.0 MB."
    )
    assert not any(asked.startswith("POST") for asked in fake.asked)


def test_a_full_queue_is_waited_for(shown: Visit, fake: Fake) -> None:
    expect(shown.page.locator("#model-line")).to_contain_text("25 classes")
    fake.full = 1
    answered(shown.page)
    assert sum(asked.startswith("POST /predict") for asked in fake.asked) == 2


def test_the_model_tab_tells_all_and_a_class_named_like_a_tag_stays_text(shown: Visit) -> None:
    page = shown.page
    shown.open_tab("Model")
    expect(page.locator("h1")).to_have_text("birds")
    expect(page).to_have_title("birds · gcab")
    facts = page.locator("#model-facts")
    for words in ("gcab 0.1.0", "32 × 32 pixels", "5.4 MB", "25"):
        expect(facts).to_contain_text(words)
    expect(page.locator("#model-capacity li").nth(0)).to_contain_text("62.0 %")
    expect(page.locator("#model-capacity li").nth(1)).to_contain_text("45.0 %")
    tasks = page.locator("#model-tasks details")
    expect(tasks.nth(0)).to_contain_text("93.4 % right when learned (36 held out) · about 62 % now, an estimate")
    expect(page.locator("#model-warnings li")).to_contain_text("about 62 % now")
    expect(facts).to_contain_text("about 68 % of new photos, an estimate")
    expect(tasks.nth(1)).to_contain_text("88.1 % right when learned (24 held out)")
    expect(tasks.nth(1).get_by_text(HOSTILE, exact=True)).to_be_visible()
    expect(page.locator("img")).to_have_count(0)
    hidden = tasks.nth(2).get_by_text("warbler 7")
    expect(hidden).to_be_hidden()
    tasks.nth(2).locator("summary").click()
    expect(hidden).to_be_visible()
    shown.picture("model")
    shown.open_tab("Predict")
    answered(page)
    expect(page.locator("#answer-top").get_by_text(HOSTILE, exact=True)).to_be_visible()
    expect(page.locator("img")).to_have_count(1)  # the thumbnail


def test_teaching_shows_progress_then_both_accuracies_and_can_be_undone(shown: Visit, fake: Fake) -> None:
    page = shown.page
    answered(page)
    shown.open_tab("Teach")
    shown.picture("teach-idle")
    fake.script, fake.steps = lesson(epochs=2), 1
    page.locator("#archive-input").set_input_files(ZIP)
    expect(page.locator("#job-title")).to_have_text("Learning bullfinch, wren")
    expect(page.locator("#job-detail")).to_have_text("Epoch 1 of at most 2 · about 1 s left")
    assert page.locator("#job-progress").evaluate("bar => bar.value") == 0.5
    expect(page.get_by_role("button", name="Choose a zip")).to_be_disabled()
    expect(page.get_by_role("button", name="Undo…")).to_be_disabled()
    fake.steps = 2
    expect(page.locator("#job-title")).to_have_text("Learned 2 new classes")
    expect(page.locator("#accuracy-before")).to_have_text("88.1 %")
    expect(page.locator("#accuracy-after")).to_have_text("86.4 %")
    expect(page.locator("#loss-now")).to_have_text("0.600")
    points = page.locator("#accuracy-line polyline").get_attribute("points")
    assert points == "4.0,36.0 236.0,20.0"  # 50 % and 75 %, over a scale of 100 in 64 of 72 pixels
    shown.picture("teach-done")
    shown.open_tab("Predict")
    expect(page.locator("#answer-stale")).to_contain_text("The model has changed")
    page.get_by_role("button", name="Ask again").click()
    expect(page.locator("#answer-stale")).to_be_hidden()
    shown.open_tab("Model")
    expect(page.locator("#model-tasks details")).to_have_count(4)

    shown.open_tab("Teach")
    undo = page.get_by_role("button", name="Undo…")
    undo.click()
    shown.picture("undo-dialog")
    expect(page.get_by_role("dialog")).to_contain_text("task 4 (2 classes: bullfinch, wren)")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert len(fake.tasks) == 4
    undo.click()
    page.get_by_role("dialog").get_by_role("button", name="Undo").click()
    expect(page.locator("#model-line")).to_contain_text("25 classes in 3 tasks")
    expect(page.locator("#job")).to_be_hidden()
    shown.open_tab("Model")
    expect(page.locator("#model-tasks details")).to_have_count(3)


@pytest.mark.parametrize("stores", [False, True])
def test_what_becomes_of_the_photos_is_said_of_this_model(browser: Browser, stores: bool) -> None:
    with running(Fake(stores_images=stores)) as address, visit(browser, address, "/#teach") as shown:
        expect(shown.page.locator("#teach-stores")).to_be_visible(visible=stores)
        shown.open_tab("Model")
        told = f"5.4 MB, {'some photos' if stores else 'no photo'} in it"
        expect(shown.page.locator("#model-facts dd").last).to_have_text(told)


def test_a_distillation_is_undone_by_its_name(browser: Browser) -> None:
    fake = Fake(distilled=True)
    with running(fake) as address, visit(browser, address) as shown:
        shown.open_tab("Teach")
        page = shown.page
        expect(page.get_by_role("heading", name="Undo the distillation")).to_be_visible()
        expect(page.locator("#undo-line")).to_have_text("The model goes back to before its distillation.")
        page.get_by_role("button", name="Undo…").click()
        shown.picture("undo-distillation")
        expect(page.get_by_role("dialog")).to_contain_text("The model forgets no class")
        page.get_by_role("dialog").get_by_role("button", name="Undo").click()
        expect(page.get_by_role("heading", name="Undo the last task")).to_be_visible()
        expect(page.locator("#undo-line")).to_contain_text("goes back to before task 3 (20 classes")
        expect(page.locator("#model-line")).to_contain_text("25 classes in 3 tasks")


def test_a_long_end_of_a_lesson_is_shown(browser: Browser) -> None:
    job = lesson(epochs=2)[-2]
    events = [*job["events"], {"event": "ending", "share": 0.25, "seconds_left": 42.0}]
    with running(Fake(job={**job, "events": events}, steps=0)) as address, visit(browser, address) as shown:
        shown.open_tab("Teach")
        expect(shown.page.locator("#job-detail")).to_have_text("Finishing · about 42 s left")
        assert shown.page.locator("#job-progress").evaluate("bar => bar.value") == 0.25


def test_a_job_under_way_is_found_when_the_page_opens(browser: Browser) -> None:
    fake = Fake(job=lesson(epochs=2)[1], script=lesson(epochs=2)[-1:], steps=0)
    with running(fake) as address, visit(browser, address) as shown:
        shown.open_tab("Teach")
        expect(shown.page.locator("#job-title")).to_have_text("Learning bullfinch, wren")
        fake.steps = 1
        expect(shown.page.locator("#accuracy-after")).to_have_text("86.4 %")
        expect(shown.page.locator("#model-line")).to_contain_text("generation 4")


def test_what_goes_wrong_with_teaching_is_said_in_a_sentence(shown: Visit, fake: Fake) -> None:
    page, trouble = shown.page, shown.page.locator("#teach-trouble")
    shown.open_tab("Teach")
    expect(page.get_by_role("button", name="Choose a zip")).to_be_enabled()
    drop(page, "holiday.jpg", "image/jpeg")
    expect(trouble).to_contain_text("holiday.jpg is not a zip")
    fake.refusal = "week2.zip holds no folder with photos."
    page.locator("#archive-input").set_input_files(ZIP)
    expect(trouble).to_contain_text("week2.zip holds no folder with photos.")
    expect(page.locator("#job")).to_be_hidden()
    fake.refusal, fake.script = None, lesson(epochs=0, error="wren has 1 photo: give at least 2.")
    trouble.get_by_role("button", name="Try again").click()
    expect(trouble).to_contain_text("wren has 1 photo: give at least 2.")
    expect(page.get_by_role("button", name="Choose a zip")).to_be_enabled()
    shown.picture("teach-failed")


def test_teaching_is_shown_as_off_where_it_is(browser: Browser) -> None:
    fake = Fake(can_teach=False)
    with running(fake) as address, visit(browser, address, "/#teach") as shown:
        expect(shown.page.locator("#teach-off")).to_contain_text("--allow-teach")
        expect(shown.page.get_by_role("button", name="Choose a zip")).to_be_disabled()
        expect(shown.page.get_by_role("button", name="Undo…")).to_be_disabled()
        drop(shown.page, "week2.zip", "application/zip")
        shown.picture("teach-off")
    assert not any("/teach" in asked for asked in fake.asked)


def test_the_token_is_asked_for_once_and_kept(browser: Browser) -> None:
    fake = Fake(token="correct-horse-battery")
    with running(fake) as address, visit(browser, address) as shown:
        page, dialog = shown.page, shown.page.get_by_role("dialog")
        expect(page.get_by_label("Token", exact=True)).to_be_focused()
        page.keyboard.type("wrong-horse")
        shown.picture("token-dialog")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("That token was not accepted.")
        page.get_by_label("Token", exact=True).fill("correct-horse-battery")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("birds")
        expect(dialog).to_be_hidden()
        page.reload()
        answered(page)
        expect(dialog).to_be_hidden()


def test_without_a_token_the_page_says_so_and_can_try_again(browser: Browser) -> None:
    with running(Fake(token="correct-horse-battery")) as address, visit(browser, address) as shown:
        shown.page.get_by_role("button", name="Cancel").click()
        expect(shown.page.locator("#trouble")).to_contain_text("This server asks for a token.")
        shown.page.get_by_role("button", name="Try again").click()
        expect(shown.page.get_by_role("dialog")).to_be_visible()


def test_a_server_that_is_gone_is_named_and_tried_again(browser: Browser) -> None:
    fake = Fake(broken=True)
    with running(fake) as address, visit(browser, address) as shown:
        page = shown.page
        expect(page.locator("#trouble")).to_contain_text("The server cannot be reached")
        choose(page, photo())
        expect(page.locator("#answer-trouble")).to_contain_text("The server cannot be reached")
        shown.picture("server-gone")
        fake.broken = False
        page.locator("#trouble").get_by_role("button", name="Try again").click()
        expect(page.locator("#trouble")).to_be_hidden()
        page.locator("#answer-trouble").get_by_role("button", name="Try again").click()
        expect(page.locator("#answer-class")).to_have_text("kingfisher")


def test_the_keyboard_alone_is_enough(shown: Visit) -> None:
    page = shown.page
    page.on("filechooser", lambda _: None)  # from the start, or the first chooser may come before anybody listens
    page.keyboard.press("Tab")
    expect(page.get_by_role("tab", name="Predict")).to_be_focused()
    ring = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Model")).to_be_focused()
    expect(page.locator("#panel-model")).to_be_visible()
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Teach", selected=True)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Predict", selected=True)).to_be_focused()
    expect(page.locator("[role=tab][tabindex='0']")).to_have_count(1)
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Choose photos")).to_be_focused()
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    assert chooser.value.is_multiple()
    chooser.value.set_files([photo("one.png"), photo("two.png")])
    expect(page.locator(".photo .caption")).to_have_text(["kingfisher", "kingfisher"])
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#answer-file")).to_have_text("two.png")


@pytest.mark.parametrize("width", [360, 390])
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, width: int) -> None:
    fake = Fake()
    fake.tasks[0]["classes"][0] = "W" * 80
    with running(fake) as address, visit(browser, address, width=width, height=800, dark=width == 360) as shown:
        choose(shown.page, *(photo(f"{'long-name-' * 6}{index}.png", index) for index in range(8)))
        expect(shown.page.locator("#answer-body")).to_be_visible()
        for tab in ("Predict", "Model", "Report", "Teach"):
            shown.open_tab(tab)
            shown.picture(f"phone-{width}-{tab.lower()}")
            assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width, tab


CONTRAST = """() => {
    const luminance = (colour) => {
        const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => linear(part / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
        for (; node; node = node.parentElement) {
            const back = getComputedStyle(node).backgroundColor;
            if (!back.endsWith(", 0)")) return back;
        }
    };
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const owner = node.parentElement;
        if (!node.data.trim() || !owner.checkVisibility() || owner.closest(":disabled, .unseen")) continue;
        const [one, other] = [getComputedStyle(owner).color, behind(owner)].map(luminance);
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) found.push(`${node.data.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
    }
    return found;
}"""
NAMELESS = """() => [...document.querySelectorAll("button, input, select, canvas, svg, img, progress, section, dialog")]
    .filter((one) => !one.closest("[aria-hidden=true]") && !(
        one.getAttribute("aria-label") || one.getAttribute("alt") || one.labels?.length ||
        (one.tagName === "BUTTON" && one.textContent.trim()) ||
        document.getElementById(one.getAttribute("aria-labelledby"))?.textContent))
    .map((one) => one.outerHTML)"""


@pytest.mark.parametrize("dark", [False, True])
def test_everything_has_a_name_and_can_be_read(browser: Browser, dark: bool) -> None:
    fake = Fake(job=lesson(epochs=2)[2])
    with running(fake) as address, visit(browser, address, dark=dark) as shown:
        page = shown.page
        answered(page, "strange.png")
        for tab in ("Predict", "Model", "Report", "Teach"):
            shown.open_tab(tab)
            assert page.evaluate(NAMELESS) == []
            assert page.evaluate(CONTRAST) == []
            shown.picture(f"{'dark' if dark else 'light'}-{tab.lower()}")
        assert page.locator("html").get_attribute("lang") == "en"
        ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))


def test_the_page_names_nothing_outside_and_has_no_inline_code() -> None:
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name
        assert "innerHTML" not in text, file.name
        assert " style=" not in text, file.name
        assert file.suffix != ".js" or len(text.splitlines()) < 300
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert page.count("<script") == 1
    assert "<style" not in page
