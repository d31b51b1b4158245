"""What is in exported files and what they answer, beside the model they were made of."""

import json
import re
import textwrap
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from helpers.models import SIZE, random_bytes, save_tiny, tiny_model
from helpers.photos import soft

from gcab.classifier.learner import ContinualClassifier
from gcab.cli.main import main
from gcab.data.digits import load as load_digits
from gcab.export.exported import Exported
from gcab.export.writing import LIMIT, METADATA_FILE, OUTPUTS, export_onnx
from gcab.methods.method import state_bytes
from gcab.version import VERSION

pytestmark = pytest.mark.usefixtures("unmeasured_translation")


@dataclass(frozen=True)
class Sample:
    """A model and a file exported from it."""

    model: ContinualClassifier
    path: Path
    photos_in: bool  # with preprocessing

    def graph(self) -> onnx.ModelProto:
        return onnx.load(self.path)

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        return torch.export.load(self.path)

    @cached_property
    def module(self) -> torch.nn.Module:
        return self.program.module()

    @cached_property
    def session(self) -> Any:
        return onnxruntime.InferenceSession(self.path)

    def answers(self, images: torch.Tensor) -> dict[str, np.ndarray[Any, Any]]:
        """The file's outputs for bytes (n, 3, H, W)."""
        given = images.permute(0, 2, 3, 1) if self.photos_in else self.model.method.setting.normalise(images)
        if self.path.suffix == ".pt2":
            outputs = [output.numpy() for output in self.module(given)]
        else:
            outputs = self.session.run(None, {"images": given.numpy()})
        return dict(zip(OUTPUTS, outputs, strict=True))


# With the second opinion, which takes most of the time, where photos go in and as a program of torch. It looks at
# mirror images, too, in tests/eye, where it has patches of one size; with both the graphs would be twice as long.
CASES = {
    "official, 1 task": ("gcab", "official", 1, ".onnx", False),
    "official, 3 tasks": ("gcab", "official", 3, ".onnx", False),
    "extended, 4 tasks, photos": ("gcab", "extended", 4, ".onnx", True),
    "paper, 2 tasks": ("gcab", "paper", 2, ".onnx", False),
    "fast, 3 tasks": ("gcab-fast", "official", 3, ".onnx", False),
    "replay, 2 tasks, photos": ("er", "extended", 2, ".onnx", True),
    "extended, 2 tasks, torch": ("gcab", "extended", 2, ".pt2", False),
    "replay, 2 tasks, torch, photos": ("er", "extended", 2, ".pt2", True),
}


class Samples:
    """Exports each case once, when a test first asks for it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, dict[str, Sample]()

    def __getitem__(self, case: str) -> Sample:
        if case not in self.made:
            method, profile, tasks, suffix, photos_in = CASES[case]
            place = self.folder / str(len(self.made))
            path = place / f"exported{suffix}"
            model = tiny_model(place / "model", method, profile, tasks, flip=False)
            if suffix == ".onnx":
                done = export_onnx(model, path, photos_in)
                assert (done.path, done.metadata["gcab"]) == (path, VERSION)
                assert max(done.probabilities, done.logits) <= LIMIT
            else:
                flags = ["--with-preprocessing"] if photos_in else []
                assert main(["export", str(place / "model"), str(path), *flags]) == 0
            assert sorted(entry.name for entry in place.iterdir()) == [
                path.name,
                "model",
            ]  # one file, nothing beside it
            self.made[case] = Sample(model, path, photos_in)
        return self.made[case]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    return Samples(tmp_path_factory.mktemp("exported"))


def assert_same(sample: Sample, images: torch.Tensor) -> None:
    """Nearly the same numbers and exactly the same decisions as the model itself."""
    answers, pixels = sample.answers(images), images.permute(0, 2, 3, 1).numpy()
    own = sample.model.logits(pixels).numpy()
    assert answers["logits"].shape == own.shape
    assert np.abs(answers["logits"] - own).max() <= LIMIT * np.abs(own).max()
    assert np.abs(answers["probabilities"] - sample.model.predict_proba(pixels)).max() <= LIMIT
    assert answers["unknown"].shape == (len(images),)
    assert np.abs(answers["unknown"] - sample.model.unknown(pixels)).max() <= 0.02
    assert (answers["logits"].argmax(axis=1) == own.argmax(axis=1)).all()


@pytest.mark.parametrize("case", CASES)
def test_the_file_answers_as_the_model(samples: Samples, case: str) -> None:
    sample = samples[case]
    for count in (1, 2, 7):
        assert_same(sample, random_bytes(count, 3, SIZE, SIZE, seed=count))
    assert_same(sample, load_digits(None, "test", SIZE).images[:20])


def test_the_scores_are_not_all_alike(samples: Samples) -> None:
    """Else the comparisons above would show nothing."""
    answers = samples["extended, 4 tasks, photos"].answers(random_bytes(40, 3, SIZE, SIZE))
    assert len(set(answers["logits"].argmax(axis=1))) > 2
    assert len(set(answers["unknown"])) > 5
    assert answers["probabilities"].max() - answers["probabilities"].min() > 0.1
    plain = torch.from_numpy(answers["logits"]).softmax(dim=1).numpy()
    assert np.abs(plain - answers["probabilities"]).max() > 0.01  # the temperature is not 1


@pytest.mark.repeats
def test_photos_of_other_sizes(samples: Samples, tmp_path: Path) -> None:
    sample = samples["extended, 4 tasks, photos"]
    files = [tmp_path / f"{width}.png" for width in (SIZE, 21, 50)]
    for path in files:
        width = int(path.stem)
        image = soft(width, max(SIZE, width - 6), seed=width)
        image.save(path)
        answers = sample.answers(torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None])
        own = sample.model.predict_proba([path])
        assert answers["logits"].argmax() == own.argmax()
        assert np.abs(answers["probabilities"] - own).max() <= (LIMIT if width == SIZE else 0.02)


@pytest.mark.parametrize("case", ["extended, 4 tasks, photos", "paper, 2 tasks"])
def test_the_file_is_sound_and_says_what_it_takes(samples: Samples, case: str) -> None:
    sample = samples[case]
    graph = sample.graph()
    onnx.checker.check_model(graph, full_check=True)
    (given,) = sample.session.get_inputs()
    assert given.name == "images"
    if sample.photos_in:
        assert (given.type, given.shape) == ("tensor(uint8)", ["n", "height", "width", 3])
    else:
        assert (given.type, given.shape) == ("tensor(float)", ["n", 3, SIZE, SIZE])
    assert [output.name for output in graph.graph.output] == ["logits", "probabilities", "unknown"]
    assert b".py" not in sample.path.read_bytes()  # neither code positions nor folders of this machine


def test_metadata(samples: Samples) -> None:
    plain, photos = samples["official, 1 task"], samples["extended, 4 tasks, photos"]
    found = {entry.key: entry.value for entry in photos.graph().metadata_props}
    assert found["gcab"] == VERSION
    assert found["method"] == "gcab"
    assert json.loads(found["classes"]) == photos.model.classes
    assert json.loads(found["tasks"]) == [1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert (found["layout"], found["image_size"]) == ("NHWC", str(SIZE))
    assert float(found["temperature"]) == photos.model.calibration.temperature != 1
    assert int(found["calibration_images"]) == 60
    assert tuple(json.loads(found["mean"])) == photos.model.method.setting.mean
    assert tuple(json.loads(found["std"])) == photos.model.method.setting.std
    described = {entry.key: entry.value for entry in plain.graph().metadata_props}
    assert described["layout"] == "NCHW"
    assert described["input"] == f"float32 (n, 3, {SIZE}, {SIZE}): RGB, (pixel / 255 - mean) / std"
    assert plain.graph().producer_version == VERSION


@pytest.mark.repeats
def test_the_torch_program_carries_the_same_metadata_and_no_paths(samples: Samples) -> None:
    extra = {METADATA_FILE: ""}
    sample = samples["extended, 2 tasks, torch"]
    program = torch.export.load(sample.path, extra_files=extra)
    found = json.loads(extra[METADATA_FILE])
    assert json.loads(found["classes"]) == sample.model.classes
    assert found["gcab"] == VERSION
    assert not any(tensor.requires_grad for tensor in program.module().parameters())
    assert b"/gcab/export.py" not in sample.path.read_bytes()


def test_stored_training_images_stay_at_home(samples: Samples) -> None:
    sample, other = samples["replay, 2 tasks, torch, photos"], samples["replay, 2 tasks, photos"]
    assert any(tensor.dtype == torch.uint8 for tensor in sample.model.method.state_dict().values())
    held = [*sample.program.state_dict.values(), *sample.program.constants.values()]
    assert not any(tensor.dtype == torch.uint8 for tensor in held)
    assert not any(tensor.data_type == onnx.TensorProto.UINT8 for tensor in other.graph().graph.initializer)


EYE = 6  # two sums over cells for each of three sizes of patches


def operations(sample: Sample) -> Counter[str]:
    return Counter(node.op_type for node in sample.graph().graph.node)


def test_the_weights_are_there_once(samples: Samples) -> None:
    for case in ("official, 1 task", "extended, 4 tasks, photos", "paper, 2 tasks"):
        sample = samples[case]
        stored = sum(len(tensor.raw_data) for tensor in sample.graph().graph.initializer)
        offsets = 12 * (SIZE // 4) ** 4  # the encoder's patch distances, made when a model is built
        knots = 8 * 256
        folded = 4 * 4 * 16 * 8 * len(sample.model.tasks)  # what replaces gates, queries and keys
        assert stored < state_bytes(sample.model.method) + offsets + knots + folded


def test_later_tasks_add_a_projector_and_a_look_at_its_features(samples: Samples) -> None:
    one, three = operations(samples["official, 1 task"]), operations(samples["official, 3 tasks"])
    assert one["Gelu"] == three["Gelu"] == 2  # encoder and decoder
    assert (one["Relu"], three["Relu"]) == (0, 2)  # one in each projector
    per_task = 2 + 2  # a projector's two layers; attention's logits and mixtures
    assert three["MatMul"] - one["MatMul"] == 2 * per_task


def test_the_second_opinion_is_asked_once(samples: Samples) -> None:
    asked = operations(samples["extended, 4 tasks, photos"])
    assert asked["AveragePool"] == EYE + 1  # and the grid of the class statistics
    assert asked["Relu"] == 3  # one in each projector


def test_distilled_tasks_cost_one_pass(samples: Samples) -> None:
    one, fast = operations(samples["official, 1 task"]), operations(samples["fast, 3 tasks"])
    assert fast["MatMul"] == one["MatMul"]
    assert fast["Relu"] == 0


def test_ten_tasks_apply_nine_projectors_and_every_layer_once(tmp_path: Path) -> None:
    module = Exported(tiny_model(tmp_path / "model", tasks=10), with_preprocessing=False)
    calls: Counter[str] = Counter()
    for name, layer in module.predictor.named_modules():
        counted = isinstance(layer, torch.nn.Linear | torch.nn.LayerNorm)
        if counted and name.startswith(("heads.encoder.", "heads.cascade.")):
            layer.register_forward_hook(lambda *_, name=name: calls.update([name]))
    module(module.samples()[0])
    assert sum(name.startswith("heads.cascade.") for name in calls) == 9 * 3  # a norm and two layers
    assert set(calls.values()) == {1}


def test_the_documented_lines_run(
    samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = samples["extended, 4 tasks, photos"]
    (tmp_path / "birds.onnx").write_bytes(sample.path.read_bytes())
    soft(SIZE, SIZE).save(tmp_path / "some.jpg", format="PNG")
    monkeypatch.chdir(tmp_path)
    (lines,) = re.findall(r"run it:\n\n(.*)\n", export_onnx.__doc__ or "", re.DOTALL)
    assert len(textwrap.dedent(lines).strip().splitlines()) == 9
    exec(textwrap.dedent(lines), {})
    best = sample.model.predict_proba(["some.jpg"])[0]
    name, _, probability = capsys.readouterr().out.rpartition(" ")
    assert name == sample.model.classes[best.argmax()]
    assert float(probability) == pytest.approx(best.max(), abs=LIMIT)


def test_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save_tiny(tmp_path / "model", "gcab", "official", 2)
    out = tmp_path / "new" / "birds.onnx"
    out.parent.mkdir()
    out.write_bytes(b"what was there before")
    with out.open("rb") as before:
        assert main(["export", str(tmp_path / "model"), str(out), "--opset", "18"]) == 0
        assert before.read() == b"what was there before"  # the new file took its place; it was not written over
    printed, complaints = capfd.readouterr()
    assert complaints == ""
    first, second, third = printed.splitlines()
    assert first.startswith(f"{out}: 5 classes, ")
    assert second == f"input float32 (n, 3, {SIZE}, {SIZE}): RGB, (pixel / 255 - mean) / std"
    assert re.fullmatch(
        r"checked with onnxruntime on random images: probabilities differ from the model's by at most \S+, "
        r"logits by \S+ of the largest",
        third,
    )
    assert [entry.name for entry in out.parent.iterdir()] == ["birds.onnx"]
    assert onnx.load(out).opset_import[0].version == 18
    sample = Sample(ContinualClassifier.load(tmp_path / "model", device="cpu"), out, photos_in=False)
    for count in (1, 2, 7):
        assert_same(sample, random_bytes(count, 3, SIZE, SIZE, seed=count))
