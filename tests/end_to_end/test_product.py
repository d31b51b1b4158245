"""From a folder of photos to a served model: every command that a person who has photos needs, one after the other."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from helpers.photos import make_photos
from helpers.processes import LIMIT, gcab, start
from helpers.settings import TINY_GCAB, set_flags
from PIL import Image

from gcab.classifier.learner import ContinualClassifier
from gcab.cli.main import main
from gcab.config import leaves

WEEK1, WEEK2 = ("crow", "finch"), ("heron", "owl", "wren")
CLASSES = (*WEEK1, *WEEK2)
SHARED = ("encoder.", "training.", "augment.", "options.")  # settings that decide how a model learns
ASKED = 3  # photos of each class that no lesson sees
SMALL = ("--epochs", "30", *set_flags({**TINY_GCAB, "encoder.width": 32, "options.eye": 0}))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`photos/week1`, `photos/week2`, and photos to ask about: `some.png` and those in `more/`."""
    everything = make_photos(tmp_path / "everything", CLASSES, 15 + ASKED, 20, 24)
    (tmp_path / "more").mkdir()
    for name in CLASSES:
        for index, photo in enumerate(sorted((everything / name).iterdir())[:ASKED]):
            photo.rename(tmp_path / "more" / f"{name}-{index}.png")
        (everything / name).rename(lesson_folder(tmp_path, name) / name)
    (tmp_path / "more" / "owl-0.png").rename(tmp_path / "some.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lesson_folder(root: Path, name: str) -> Path:
    folder = root / "photos" / ("week1" if name in WEEK1 else "week2")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.repeats
@pytest.mark.usefixtures("plain_translation")
def test_from_a_folder_of_photos_to_a_served_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*arguments: str) -> str:
        """What a command says that succeeds; within this process, where another one would show nothing more."""
        assert main(list(arguments)) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    learn(folder, "week1", generation=1)
    shutil.rmtree(folder / "photos" / "week1")
    learn(folder, "week2", generation=2)

    answers = predict(folder)
    assert [answer["file"] for answer in answers][:2] == ["some.png", "more/crow-0.png"]
    assert len(answers) == ASKED * len(CLASSES)
    for answer in answers:
        probabilities = [guess["probability"] for guess in answer["top"]]
        assert len(probabilities) == 3
        assert probabilities == sorted(probabilities, reverse=True)
        assert answer["top"][0]["task"] == (1 if answer["top"][0]["class"] in WEEK1 else 2)
    assert names(answers) == truth(answers)

    facts = json.loads(printed("info", "birds.gcab", "--json"))
    assert [task["names"] for task in facts["tasks"]] == [list(WEEK1), list(WEEK2)]
    assert [(task["images"], task["held_out"]) for task in facts["tasks"]] == [(24, 6), (36, 9)]
    assert all(task["accuracy"] is not None for task in facts["tasks"])
    assert all(0 < left < 1 for left in facts["capacity_left"].values())

    assert "back to generation 1: 2 classes (crow, finch)" in printed("undo", "birds.gcab")
    assert {name for answer in predicted(printed) for name in every_name(answer)} == set(WEEK1)
    assert "generation 2: learned heron, owl, wren" in printed("learn", "birds.gcab", "photos/week2")
    assert predicted(printed) == answers  # the same lesson from the same model

    stored = json.loads(printed("audit", "birds.gcab", "--json"))
    assert (stored["images"], stored["strangers"]) == (0, {})
    assert not [tensor for tensor in stored["tensors"] if "unknown" in tensor["purpose"]]
    assert "No image is among them." in printed("audit", "birds.gcab")

    said = printed("distill", "birds.gcab", "photos/week2", "--set", "options.distillation_steps=300")
    sizes = re.search(r"generation 3: one pass for 2 tasks, 5 classes, .* ([\d,]+) -> ([\d,]+) bytes", said)
    assert sizes is not None
    before, after = (int(size.replace(",", "")) for size in sizes.groups())
    assert after < before
    fast = predicted(printed)
    assert names(fast) == truth(fast)

    assert "birds.onnx: 5 classes" in printed("export", "birds.gcab", "birds.onnx", "--with-preprocessing")
    exported_names, probabilities = run_with_onnxruntime("birds.onnx", [answer["file"] for answer in fast])
    assert exported_names == names(fast)
    assert probabilities == pytest.approx([answer["top"][0]["probability"] for answer in fast], abs=1e-2)

    with served(folder) as url:
        assert "<html" in httpx.get(url).text
        found = ask(url, [answer["file"] for answer in fast])
    for own, other in zip(found, fast, strict=True):
        assert Path(other["file"]).name == own["file"]
        assert [guess["class"] for guess in own["top"]] == [guess["class"] for guess in other["top"]]
        assert own["top"][0]["probability"] == pytest.approx(other["top"][0]["probability"], abs=1e-4)


def test_lessons_lead_to_the_model_of_the_research_run(folder: Path) -> None:
    """Taught week by week or trained as one run with the same settings: the same weights, to the last bit."""
    for week in ("week1", "week2"):
        flags = ("--held-out", "0", "--size", "16", "--recipe", "photos", *SMALL, "--epochs", "2", "--progress", "none")
        assert main(["learn", "birds.gcab", f"photos/{week}", *flags, "--seed", "3"]) == 0
    taught = ContinualClassifier.load("birds.gcab")

    train = [(file, file.parent.name, "train") for file in sorted((folder / "photos").rglob("*.png"))]
    test = [(file, file.name[:-6], "test") for file in sorted((folder / "more").iterdir())]
    (folder / "photos.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in (*train, *test)))
    shared = {key: value for key, _, value in leaves(taught.config) if key.startswith(SHARED)}
    order = {"scenario.order": "sorted", "scenario.sizes": "2,3", "scenario.image_size": "16", "training.held_out": "0"}
    settings = [f"--{key}={value}" for key, value in (shared | order).items()]
    assert main(["train", "folder/2", "--data", "photos.csv", "--run", "run", "--seed", "3", *settings]) == 0

    run = ContinualClassifier.load("run")
    assert run.classes == taught.classes == list(CLASSES)
    own, other = taught.method.state_dict(), run.method.state_dict()
    assert own.keys() == other.keys()
    assert [name for name in own if not torch.equal(own[name], other[name])] == []


def learn(folder: Path, week: str, generation: int) -> None:
    done = gcab("learn", "birds.gcab", f"photos/{week}", *(SMALL if generation == 1 else ()), folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"generation {generation}: learned " in done.stdout


def predict(folder: Path) -> list[dict[str, Any]]:
    done = gcab("predict", "birds.gcab", "some.png", "more", "--top", "3", "--json", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def predicted(printed: Any) -> list[dict[str, Any]]:
    lines = printed("predict", "birds.gcab", "some.png", "more", "--top", "3", "--json").splitlines()
    return [json.loads(line) for line in lines]


def every_name(answer: dict[str, Any]) -> list[str]:
    return [guess["class"] for guess in answer["top"]]


def names(answers: list[dict[str, Any]]) -> list[str]:
    return [every_name(answer)[0] for answer in answers]


def truth(answers: list[dict[str, Any]]) -> list[str]:
    return ["owl" if answer["file"] == "some.png" else Path(answer["file"]).name[:-6] for answer in answers]


def run_with_onnxruntime(file: str, photos: list[str]) -> tuple[list[str], list[float]]:
    """As whoever receives the file would: the names of the classes are inside, photos go in as they are."""
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    known = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    pixels = np.stack([np.asarray(Image.open(photo).convert("RGB")) for photo in photos])
    _, probabilities, _ = session.run(None, {"images": pixels})
    return [known[index] for index in probabilities.argmax(axis=1)], probabilities.max(axis=1).tolist()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`gcab serve` in the background, ended as a person ends it."""
    with start("serve", "birds.gcab", "--port", "0", folder=folder) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("birds (generation 3, 5 classes) is served at http://127.0.0.1:"), line
            yield re.findall(r"http://\S+:\d+", line)[0]
            process.send_signal(signal.SIGINT)
            said, problems = process.communicate(timeout=LIMIT)
            assert (process.returncode, said, problems) == (0, "The server has ended.\n", "")
        finally:
            process.kill()


def ask(url: str, photos: list[str]) -> list[dict[str, Any]]:
    files = [("images", (Path(photo).name, Path(photo).read_bytes(), "image/png")) for photo in photos]
    answer = httpx.post(f"{url}/predict", files=files, params={"top": 3})
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["predictions"]
    return found
