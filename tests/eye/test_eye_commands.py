"""A model of the method eye on the command line, from its first lesson to the server."""

import json
import multiprocessing
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.eyes import name, pictures, same
from helpers.photos import save_photos
from helpers.processes import LIMIT

from gcab import ContinualClassifier, ModelFolder
from gcab.cli.main import main
from gcab.serve.schema import Model, Prediction
from gcab.serve.served import Inference, ServedModel

KILLS = 6
SET = ["--method", "eye", "--set", "options.features=64", "--progress", "bar"]


def photos(root: Path, *labels: int, count: int = 6, seed: int = 0) -> Path:
    """A folder per class."""
    for label in labels:
        save_photos(root / name(label), pictures(label, count, seed))
    return root


def run(*arguments: object) -> int:
    return main([*map(str, arguments)])


def taught(path: Path, *folders: Path, settings: tuple[str, ...] = ()) -> Path:
    for index, folder in enumerate(folders):
        assert run("learn", path, folder, "--device", "cpu", *(SET if index == 0 else []), *settings) == 0
    return path


def test_lessons_read_well_without_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = photos(tmp_path / "1", 0, 1), photos(tmp_path / "2", 1, 2, count=5, seed=1)
    model = taught(tmp_path / "m", first, second, second)
    told = capsys.readouterr().out
    assert "epoch" not in told
    assert "learning 2 classes from 10 photos (2 held out), 16 x 16 pixels, on cpu: about 1 s\n" in told
    assert "generation 1: learned a, b (" in told
    assert "learning 1 class and more of b from 8 photos" in told
    assert "generation 2: learned c and more of b (" in told
    assert "these photos are learned already" in told
    assert ModelFolder(model).generation == 2
    assert run("info", model) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "no network: nothing is trained" in told
    assert "c and more of b" in told
    assert "epoch" not in told
    assert run("predict", model, tmp_path / "1" / "a", "--device", "cpu") == 0
    assert capsys.readouterr().out.count(" a ") >= 6


def test_forgetting_and_undoing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = photos(tmp_path / "1", 0, 1, 2)
    model, never = taught(tmp_path / "m", both), taught(tmp_path / "n", photos(tmp_path / "2", 0, 2))
    assert run("forget", model, "b") == 2
    assert "give the photos of the class" in capsys.readouterr().err
    assert run("forget", model, "b", "--photos", both / "a") == 2
    assert "do not add up" in capsys.readouterr().err
    assert ModelFolder(model).generation == 1
    assert run("forget", model, "b", "--photos", both) == 0
    told = capsys.readouterr().out
    assert "generation 2: forgot b; 2 classes (a, c)" in told
    assert "left of it: one temperature" in told
    assert same(*(ContinualClassifier.load(path, "cpu") for path in (model, never)))
    assert ModelFolder(model).undoes == "forgetting"
    assert run("undo", model) == 0
    assert ContinualClassifier.load(model, "cpu").classes == ["a", "b", "c"]


def test_sums_by_class_need_no_photos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_class = ("--set", "options.forgettable=true", "--held-out", "0")
    model = taught(tmp_path / "m", photos(tmp_path / "1", 0, 1, 2), settings=by_class)
    assert run("forget", model, "b") == 0
    assert "nothing is left of it\n" in capsys.readouterr().out


def test_merging(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = photos(tmp_path / "1", 0, 1), photos(tmp_path / "2", 1, 2, seed=1)
    north, south, both = (taught(tmp_path / name, *parts) for name, parts in
                          (("n", [first]), ("s", [second]), ("b", [first, second])))  # fmt: skip
    assert run("merge", north, north) == 2
    assert run("merge", north, both) == 2
    assert "the same photos" in capsys.readouterr().err
    assert run("merge", north, south, "--out", tmp_path / "c") == 0
    assert "generation 1: 2 + 1 classes (a, b, c); 1 known to both" in capsys.readouterr().out
    assert run("merge", north, south, "--out", tmp_path / "c") == 2
    assert run("merge", north, south) == 0
    models = [ContinualClassifier.load(path, "cpu") for path in (north, tmp_path / "c", both)]
    assert same(models[0], models[2])
    assert same(models[1], models[2])


def forget(model: Path, folder: Path) -> None:
    main(["forget", str(model), "b", "--photos", str(folder), "--device", "cpu"])


@pytest.mark.usefixtures("forked_interpreters")
def test_forgetting_killed_at_any_moment(tmp_path: Path) -> None:
    folder = photos(tmp_path / "1", 0, 1, 2)
    model = taught(tmp_path / "m", folder)
    context, chance, kills = multiprocessing.get_context("forkserver"), random.Random(1), 0
    context.set_forkserver_preload(["gcab.classifier.learner", "gcab.cli.main"])
    before, after = ["a", "b", "c"], ["a", "c"]
    for _ in range(10 * KILLS):
        process = context.Process(target=forget, args=(model, folder))
        process.start()
        process.join(chance.random() / 2)
        process.kill()
        process.join(LIMIT)
        kills += process.exitcode == -9
        now = ContinualClassifier.load(model, "cpu")  # always readable
        assert now.classes == (before if now.generation == 1 else after)
        if now.generation == 2:
            assert ModelFolder(model).undo() == 1
        if kills == KILLS:
            break
    forget(model, folder)
    assert ContinualClassifier.load(model, "cpu").classes == after
    assert [entry.name for entry in model.rglob(".*")] == []


def test_no_part_of_a_photo_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(tmp_path / "1", 0, 1)
    photos(tmp_path / "2", 2, count=1)
    model = taught(tmp_path / "m", folder, tmp_path / "2")
    method = ContinualClassifier.load(model, "cpu").method
    fresh = ContinualClassifier("eye", device="cpu", settings={"options.features": 64}).learn(pictures(3), ["d"] * 6)
    filters = [dict(other.named_buffers()) for other in (method, fresh.method)]
    constants = [key for key in filters[0] if key not in method.state_dict()]
    assert len(constants) == 12  # the filters, and as a kernel takes them, which are the program's own
    assert all(torch.equal(filters[0][key], filters[1][key]) for key in constants)
    side, stored = method.setting.image_size, method.state_dict()
    assert all(value.shape[-2:] != (side, side) and value.dtype != torch.uint8 for value in stored.values())
    held = b"".join(value.numpy().tobytes() for value in stored.values())
    for picture in np.concatenate([pictures(0), pictures(1), pictures(2, 1)]):
        patches = [picture[top : top + 4, left : left + 4] for top in range(0, 13, 4) for left in range(0, 13, 4)]
        for patch in patches:
            for kind in (np.uint8, np.int32, np.float32):
                assert patch.astype(kind).tobytes() not in held
                assert patch.transpose(2, 0, 1).astype(kind).tobytes() not in held
    assert run("audit", model) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Means and sums over fewer than 3 photos tell much of each: c (1)" in told
    assert told.endswith("No image is among them.")


def test_an_eye_of_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = taught(tmp_path / "m", photos(tmp_path / "1", 0, 1))
    file = ModelFolder(model).current() / "model.json"
    description = json.loads(file.read_text())
    assert description["eye"] == 2
    file.write_text(json.dumps({**description, "eye": 1}))
    assert run("predict", model, tmp_path / "1") == 2
    assert "version 1 of the eye, this gcab sees with version 2" in capsys.readouterr().err


@pytest.mark.repeats
@pytest.mark.usefixtures("one_patch_size", "plain_translation")
@pytest.mark.parametrize("file", ["eye.pt2", "eye.onnx"])
def test_exporting(tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = taught(tmp_path / "m", photos(tmp_path / "1", 0, 1), settings=("--set", "augment.flip=true"))
    assert run("export", model, tmp_path / file, "--with-preprocessing") == 0
    assert "2 classes" in capsys.readouterr().out


def test_serving_tasks_without_classes(tmp_path: Path) -> None:
    model = taught(tmp_path / "m", photos(tmp_path / "1", 0, 1), photos(tmp_path / "2", 0, seed=1))
    served = ServedModel.load(model, Inference("cpu"))
    described = served.describe()
    assert [task["classes"] for task in described["tasks"]] == [["a", "b"], []]
    pixels = torch.from_numpy(pictures(0, 1)).permute(0, 3, 1, 2)
    answer = served.answer("a.png", served.scores(pixels, [True])[0], top=2)
    assert Prediction.model_validate(answer).top[0].class_ == "a"
    assert "undoes" in Model.model_fields
