"""Lessons: the photos arrive, the model learns in a process of its own, and whatever happens the photos are gone."""

import asyncio
import errno
import gc
import json
import sys
import tempfile
import textwrap
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import zipped
from helpers.serving import SIZE, Client, class_folders, form, model_folder, photo, serving

from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.model_folder import ModelFolder
from gcab.serve import schema
from gcab.serve.limits import Limits
from gcab.serve.teaching import STOPPED, UNEXPECTED
from gcab.serve.workplace import PREFIX, workplace

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PREPARE = """
import json, shutil, sys, time
from pathlib import Path
model, photos = Path(sys.argv[1]), Path(sys.argv[2])
assert sys.argv[3:] == ["--progress", "json"]
def tell(**event): print(json.dumps(event), flush=True)
"""


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders go in this test."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def client(tmp_path: Path, photos: Path) -> Iterator[Client]:
    with serving(model_folder(tmp_path / "birds.gcab"), allow_teach=True) as client:
        yield client
    assert left_over(photos) == []


def left_over(photos: Path) -> list[Path]:
    return list(photos.glob("gcab*"))


def script(client: Client, body: str) -> None:
    """Teach with this program instead of `gcab learn`."""
    client.service.teacher.learn = [sys.executable, "-c", PREPARE + textwrap.dedent(body)]


def teach(client: Client, content: bytes | None = None) -> Any:
    return client.post("/teach", files=form("archive", class_folders("owl", "kite") if content is None else content))


def begun(client: Client) -> None:
    while not client.get("/teach").json()["events"]:
        assert client.get("/teach").json()["state"] == "running"
        client.run(asyncio.sleep(0.02))


def finished(client: Client) -> dict[str, Any]:
    for _ in range(1200):
        report: dict[str, Any] = client.get("/teach").json()
        schema.Teaching.model_validate(report)
        if report["state"] != "running":
            return report
        client.run(asyncio.sleep(0.05))
    raise AssertionError("the lesson does not end")


@pytest.mark.repeats
def test_a_model_that_was_replaced_is_not_kept_in_memory(client: Client) -> None:
    before = weakref.ref(client.service.model)
    assert client.predict(photo()).status_code == 200
    assert client.post("/undo").status_code == 200
    gc.collect()
    assert before() is None


def test_learning_and_undoing_for_real(client: Client) -> None:
    before = client.get("/model").json()
    accepted = teach(client, class_folders("owl", "kite", count=10))
    assert accepted.status_code == 202, accepted.text
    schema.Job.model_validate(accepted.json())
    assert client.predict(photo()).json()["model"]["generation"] == 2
    again = teach(client)
    assert (again.status_code, again.json()["error"][:27]) == (409, "the model is being changed ")
    assert client.post("/undo").status_code == 409
    report = finished(client)
    assert (report["state"], report["error"]) == ("done", None), report
    events = [event["event"] for event in report["events"] if event["event"] != "note"]
    assert (events[0], events[-1]) == ("start", "done")
    assert "epoch" in events
    assert "temporary" not in json.dumps(report)
    model = client.get("/model").json()
    assert model["generation"] == 3
    assert model["tasks"][2]["classes"] == ["kite", "owl"]
    now = [task["now"] for task in model["tasks"]]
    assert report["accuracy_before"] == before["expected_accuracy"]
    assert report["accuracy_after"] == pytest.approx((2 * now[0] + 3 * now[1] + 2 * now[2]) / 7)
    assert client.predict(photo()).json()["model"]["generation"] == 3
    undone = client.post("/undo")
    schema.Model.model_validate(undone.json())
    assert (undone.status_code, undone.json()["generation"]) == (200, 2)
    assert undone.json()["classes"] == before["classes"]
    assert len(client.predict(photo()).json()["predictions"][0]["tasks"]) == 2
    nothing = client.post("/undo")
    assert (nothing.status_code, nothing.json()["error"][:26]) == (409, "there is nothing to undo: ")


def test_a_model_taught_elsewhere_is_served_soon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = ModelFolder(model_folder(tmp_path / "birds.gcab"))
    with serving(folder.path, Limits(look_seconds=0.02)) as client:
        before = client.get("/model").json()

        def wait_for(generation: int, other_than: str) -> str:
            for _ in range(500):
                model = client.get("/model").json()
                if model["digest"] != other_than:
                    assert model["generation"] == generation
                    return str(model["digest"])
                client.run(asyncio.sleep(0.01))
            raise AssertionError("the other model is not served")

        folder.undo()
        first = wait_for(1, other_than=before["digest"])
        again = ContinualClassifier.load(folder.path, device="cpu")
        images = np.random.default_rng(5).integers(0, 256, (12, SIZE, SIZE, 3), dtype=np.uint8)
        folder.write(again.learn(images, ["owl", "kite"] * 6).save)
        second = wait_for(2, other_than=first)  # the number of the model at the beginning, which it is not
        assert second != before["digest"]
        answer = client.predict(photo()).json()
        assert answer["model"] == {"generation": 2, "digest": second}
        assert {guess["class"] for guess in answer["predictions"][0]["top"]} == {"robin", "wren", "owl", "kite"}
        assert answer["predictions"][0]["unknown"] is None  # 16 photos were ever held out

        (folder.current() / "model.json").write_text("{")
        for _ in range(500):
            if "cannot be served" in caplog.text:
                break
            client.run(asyncio.sleep(0.01))
        client.run(asyncio.sleep(0.1))
        assert caplog.text.count("cannot be served") == 1  # not with every look
        assert client.predict(photo()).json()["model"]["digest"] == second


def test_photos_of_a_killed_server_are_removed_and_others_are_not(tmp_path: Path, photos: Path) -> None:
    folder = model_folder(tmp_path / "birds.gcab")
    with workplace(ModelFolder(folder)) as in_use:
        in_use.photos.mkdir()
        abandoned = photos / f"{PREFIX}killed"
        (abandoned / "photos" / "owl").mkdir(parents=True)
        (abandoned / "photos" / "owl" / "1.png").write_bytes(photo())
        (abandoned / "copy" / "birds.gcab" / "work").mkdir(parents=True)
        (abandoned / "lock").write_text("12345")
        elsewhere = tmp_path / "mine"
        elsewhere.mkdir()
        (elsewhere / "lock").write_text("keep")
        (photos / f"{PREFIX}link").symlink_to(elsewhere)
        with serving(folder):
            assert abandoned.exists()  # a server that does not learn touches nothing
        with serving(folder, allow_teach=True):
            assert not abandoned.exists()
        assert in_use.photos.is_dir()
        assert (elsewhere / "lock").read_text() == "keep"
    assert left_over(photos) == [photos / f"{PREFIX}link"]


def test_the_sentence_of_a_refused_lesson_arrives_without_paths(tmp_path: Path) -> None:
    with serving(model_folder(tmp_path / "birds.gcab", "finetune"), allow_teach=True) as client:
        assert teach(client, class_folders("robin", "owl")).status_code == 202
        report = finished(client)
        assert (report["state"], report["accuracy_after"]) == ("failed", None)
        assert "robin" in report["error"]
        assert "/" not in report["error"]
        assert client.get("/model").json()["generation"] == 2


@pytest.mark.repeats
def test_more_photos_of_known_classes_are_taught(client: Client) -> None:
    known = len(client.get("/model").json()["classes"])
    assert teach(client, class_folders("robin", "owl")).status_code == 202
    assert finished(client)["state"] == "done"
    assert len(client.get("/model").json()["classes"]) == known + 1


def test_events_are_kept_and_other_output_is_not(client: Client) -> None:
    script(
        client,
        """
        print("a library says hello")
        print("[1, 2]")
        print("x" * 200_000)
        for i in range(300):
            tell(event="epoch", epoch=i, where=str(photos), inner=[{"path": str(model / "lock")}])
        sys.stderr.write("e" * 300_000)
        """,
    )
    teach(client)
    report = finished(client)
    assert report["state"] == "done"
    assert [event["epoch"] for event in report["events"]] == list(range(100, 300))
    assert report["events"][0]["where"] == "photos"
    assert report["events"][0]["inner"] == [{"path": "birds.gcab/lock"}]


@pytest.mark.repeats
def test_what_the_learning_process_sees(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCAB_TOKEN", "a-secret-of-the-server")
    script(
        client,
        """
        import os
        files = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
        tell(event="start", files=files, token=os.environ.get("GCAB_TOKEN"), input=sys.stdin.read())
        """,
    )
    teach(client, zipped({"b/../x.png".replace("../", ""): photo(0), "a/y.png": photo(1)}))
    assert finished(client)["events"] == [
        {"event": "start", "files": ["a/00001.png", "b/00000.png"], "token": None, "input": ""}
    ]


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            "sys.stderr.write(f'gcab: {photos}/owl/1.png is damaged: remove it.'); sys.exit(2)",
            "photos/owl/1.png is damaged: remove it.",
        ),
        ("sys.exit(2)", UNEXPECTED),
        ("1 / 0", UNEXPECTED),
        ("import os; os.kill(os.getpid(), 9)", UNEXPECTED),
        ("sys.stderr.write('gcab: half'); sys.exit(1)", UNEXPECTED),
    ],
)
def test_lessons_that_fail(client: Client, body: str, error: str, capfd: pytest.CaptureFixture[str]) -> None:
    script(client, body)
    teach(client)
    report = finished(client)
    assert (report["state"], report["error"]) == ("failed", error)
    if "1 / 0" in body:
        assert "ZeroDivisionError" in capfd.readouterr().err
    assert teach(client).status_code == 202  # the next one may begin
    finished(client)


def test_a_program_that_is_not_there(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.service.teacher.learn = ["no-such-program"]
    assert teach(client).status_code == 202
    assert finished(client)["error"] == UNEXPECTED
    assert "no-such-program" in caplog.text


@pytest.mark.repeats
def test_a_model_that_cannot_be_read_afterwards(client: Client) -> None:
    script(client, "(model / 'generation-0003').mkdir(); (model / 'generation-0003/model.json').write_text('{')")
    teach(client)
    report = finished(client)
    assert report["state"] == "failed"
    assert "damaged" in report["error"]
    assert str(client.service.path.parent) not in report["error"]
    assert client.predict(photo()).json()["model"]["generation"] == 2


@pytest.mark.repeats
@pytest.mark.parametrize(
    "content", [b"", b"no zip", zipped({"a/1.png": b"?", "b/2.png": b"?"}), zipped({"1.png": photo()})]
)
def test_bad_zips_are_refused_at_once(client: Client, content: bytes) -> None:
    refused = teach(client, content)
    assert refused.status_code == 422, refused.text
    schema.Failure.model_validate(refused.json())
    assert client.get("/teach").json()["state"] == "idle"
    assert not client.service.teacher.busy


@pytest.mark.repeats
def test_other_fields_and_several_archives(client: Client) -> None:
    good = class_folders("owl", "kite")
    assert client.post("/teach", files=form("zip", good)).status_code == 422
    assert client.post("/teach", files=form("archive", good, good)).status_code == 413
    assert client.post("/teach", content=good).status_code == 415
    assert not client.service.teacher.busy


@pytest.mark.repeats
def test_the_server_stops_during_a_lesson(tmp_path: Path, photos: Path) -> None:
    with serving(model_folder(tmp_path / "birds.gcab"), allow_teach=True) as client:
        script(client, "tell(event='start'); time.sleep(1800)")
        assert teach(client).status_code == 202
        begun(client)
        assert len(left_over(photos)) == 1
        began = time.monotonic()
    assert time.monotonic() - began < 900  # of the half hour that the lesson would take
    assert left_over(photos) == []
    assert (client.service.teacher.state, client.service.teacher.error) == ("failed", STOPPED)


@pytest.mark.repeats
@pytest.mark.parametrize("waiting", [False, True])
def test_an_unfinished_lesson_leaves_the_model_as_it_was(tmp_path: Path, photos: Path, waiting: bool) -> None:
    folder = ModelFolder(model_folder(tmp_path / "birds.gcab"))
    if waiting:  # `gcab learn` was interrupted here
        folder.work.mkdir()
        (folder.work / "checkpoint-000001.json").write_text("of somebody else")
    before = contents(folder.path)
    with serving(folder.path, allow_teach=True) as client:
        script(
            client,
            """
            assert not (model / "work").exists()
            (model / "work").mkdir()
            (model / "work" / "checkpoint-000001.json").write_text("made of the photos")
            tell(event="start")
            time.sleep(1800)
            """,
        )
        assert teach(client).status_code == 202
        begun(client)
    assert contents(folder.path) == before
    assert left_over(photos) == []


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_a_process_that_does_not_want_to_stop(tmp_path: Path, photos: Path) -> None:
    with serving(model_folder(tmp_path / "birds.gcab"), Limits(stop_seconds=0.2), allow_teach=True) as client:
        script(client, "import signal; signal.signal(15, signal.SIG_IGN); tell(event='start'); time.sleep(1800)")
        teach(client)
        begun(client)
    assert left_over(photos) == []


def test_changes_while_another_process_writes(client: Client) -> None:
    with ModelFolder(client.service.path).locked():
        for refused in (client.post("/undo"), teach(client)):
            assert refused.status_code == 409
            assert "another gcab process" in refused.json()["error"]
            assert "/" not in refused.json()["error"]
    assert client.post("/undo").status_code == 200


def test_a_folder_that_is_gone_is_not_made_anew(client: Client) -> None:
    place = client.service.path
    place.rename(place.with_name("elsewhere.gcab"))
    refused = teach(client)
    assert (refused.status_code, refused.json()["error"][:30]) == (503, "the model's folder is gone: wh")
    assert not place.exists()
    assert client.get("/teach").json()["state"] == "idle"


def test_a_folder_that_goes_during_the_lesson_is_not_made_anew(client: Client) -> None:
    place = client.service.path
    script(client, "(model / 'generation-0001').rename(model / 'generation-0003'); tell(event='start'); time.sleep(1)")
    assert teach(client).status_code == 202
    place.rename(place.with_name("elsewhere.gcab"))
    report = finished(client)
    assert (report["state"], report["error"][:33]) == ("failed", "the model's folder was moved or c")
    assert not place.exists()


def test_photos_that_are_cut_short_are_named_as_in_the_zip(client: Client) -> None:
    whole = photo(0, 64, 64, "JPEG")
    files = {f"{name}/{seed}.png": photo(seed) for name in ("owl", "kite") for seed in range(2)}
    assert teach(client, zipped({**files, "owl/from the garden.jpg": whole[: len(whole) // 2]})).status_code == 202
    report = finished(client)
    assert report["state"] == "failed"
    assert report["error"].startswith("1 of 5 photos cannot be read, so nothing was learned (owl/from the garden.jpg")
    assert report["error"].endswith(": take them out of the zip and send it again.")


@pytest.mark.repeats
@pytest.mark.parametrize("path", ["/teach", "/predict"])
def test_no_room_for_what_is_sent(client: Client, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
        field = "archive" if path == "/teach" else "images"
        refused = client.post(path, files=form(field, bytes(3 * 2**20)))
    assert (refused.status_code, refused.json()["error"][:26]) == (507, "the server's disk is full:")
    assert not client.service.teacher.busy


@pytest.mark.repeats
def test_no_room_for_the_lesson(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no")

    for place in ("tempfile.mkdtemp", "shutil.copyfile"):
        with monkeypatch.context() as patched:
            patched.setattr(f"gcab.serve.workplace.{place}", lambda *_, **__: fail())
            assert teach(client).status_code == 507
    assert not client.service.teacher.busy
