"""What cannot be exported is said in one sentence, and no file is harmed."""

import importlib.util
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.models import tiny_model
from torch import Tensor

from gcab.classifier.learner import ContinualClassifier
from gcab.cli.main import main
from gcab.errors import GcabError
from gcab.export import writing as export
from gcab.export.exported import Exported
from gcab.export.writing import Run, export_onnx, export_torch, save_checked, translating


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ContinualClassifier:
    return tiny_model(tmp_path_factory.mktemp("refusals") / "model", tasks=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["birds.bin"], "'birds.bin' does not say which format to write: end it in .onnx or .pt2, or give --format."),
        (["birds"], "'birds' does not say which format to write: end it in .onnx or .pt2, or give --format."),
        (
            ["b.onnx", "--format", "torch"],
            "'b.onnx' ends like a file of format onnx, not torch: change one of the two.",
        ),
        (["b.pt2", "--format", "onnx"], "'b.pt2' ends like a file of format torch, not onnx: change one of the two."),
        (["birds.pt2", "--opset", "20"], "--opset is for ONNX files: leave it out here."),
        (["birds.onnx"], "there is no model in missing"),
    ],
)
def test_bad_commands(
    arguments: Sequence[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "missing", *arguments]) == 2
    printed, complaint = capsys.readouterr()
    assert printed == ""
    assert complaint.startswith(f"gcab: {sentence}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opset", [17, 1, 99])
def test_unknown_operator_sets(model: ContinualClassifier, tmp_path: Path, opset: int) -> None:
    with pytest.raises(GcabError, match=f"opset {opset} is not available: give 18 to"):
        export_onnx(model, tmp_path / "b.onnx", opset=opset)


def test_a_missing_extra_is_named(model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else there(name))
    with pytest.raises(GcabError, match=r"needs onnxruntime, which is not installed: pip install 'gcab\[export\]'"):
        export_onnx(model, tmp_path / "b.onnx")


def test_models_too_large_for_one_file(
    model: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MOST_BYTES", 1000)
    with pytest.raises(GcabError, match="larger than the 2 GB that one ONNX file holds"):
        export_onnx(model, tmp_path / "b.onnx")


def test_nothing_learned_yet(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match="learned nothing yet"):
        export_torch(ContinualClassifier(device="cpu"), tmp_path / "b.pt2")


def test_a_predict_that_cannot_be_followed(model: ContinualClassifier, tmp_path: Path) -> None:
    class Curious(torch.nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1) if images.sum() > 0 else -images.flatten(1)

    module = Exported(model, with_preprocessing=False)
    module.predictor = Curious()
    with pytest.raises(GcabError, match="the method Gcab cannot be exported"), translating(model.method):
        module.program(strict=False)
    assert list(tmp_path.iterdir()) == []


def test_the_exporter_is_silenced_and_others_are_not(
    model: ContinualClassifier, caplog: pytest.LogCaptureFixture
) -> None:
    with translating(model.method):
        warnings.warn("chatter", UserWarning, stacklevel=1)
        logging.getLogger("torch.onnx").warning("chatter")
    assert caplog.records == []
    logging.getLogger("torch.onnx").warning("heard")
    assert [record.message for record in caplog.records] == ["heard"]
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)


def changed(module: Exported, output: int, by: float) -> Run:
    """The module with one output moved."""

    def run(images: Tensor) -> list[Tensor]:
        answers = list(module(images))
        answers[output] = answers[output] + by * answers[output].abs().max()
        return answers

    return run


def shorter(module: Exported) -> Run:
    return lambda images: [output[:1] for output in module(images)]


def save(module: Exported, path: Path, run: Run) -> Any:
    return save_checked(path, b"content", module, {}, lambda _: run)


def test_a_right_file_takes_the_place(model: ContinualClassifier, tmp_path: Path) -> None:
    module = Exported(model, with_preprocessing=True)
    done = save(module, tmp_path / "deep" / "b.onnx", changed(module, 0, 5e-5))
    assert (tmp_path / "deep" / "b.onnx").read_bytes() == b"content"
    assert done.logits == pytest.approx(5e-5, rel=0.1)
    assert done.probabilities < 1e-6


def test_what_a_killed_export_left_is_removed(model: ContinualClassifier, tmp_path: Path) -> None:
    (tmp_path / ".b.onnx.aee7a3d8.tmp").write_bytes(b"half")
    module = Exported(model, with_preprocessing=False)
    save(module, tmp_path / "b.onnx", changed(module, 0, 0.0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["b.onnx"]


@pytest.mark.parametrize(("output", "by"), [(0, 2e-4), (1, 1e-3), (2, 0.1), (0, float("nan")), (1, float("nan"))])
def test_a_wrong_file_does_not(model: ContinualClassifier, tmp_path: Path, output: int, by: float) -> None:
    path = tmp_path / "b.onnx"
    path.write_bytes(b"good")
    module = Exported(model, with_preprocessing=False)
    with pytest.raises(GcabError, match=r"b\.onnx was not written, as the exported model answers differently"):
        save(module, path, changed(module, output, by))
    assert path.read_bytes() == b"good"
    assert [entry.name for entry in tmp_path.iterdir()] == ["b.onnx"]


def test_one_answer_that_is_no_number_is_enough(model: ContinualClassifier, tmp_path: Path) -> None:
    module = Exported(model, with_preprocessing=False)
    right, wrong = changed(module, 1, 0.0), changed(module, 1, float("nan"))
    with pytest.raises(GcabError, match="probabilities by nan"):
        save(module, tmp_path / "b.onnx", lambda images: (wrong if len(images) == 3 else right)(images))


def test_an_answer_of_another_shape_is_wrong(model: ContinualClassifier, tmp_path: Path) -> None:
    module = Exported(model, with_preprocessing=False)
    with pytest.raises(GcabError, match="probabilities by inf"):
        save(module, tmp_path / "b.onnx", shorter(module))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_run_is_not_kept(model: ContinualClassifier, tmp_path: Path) -> None:
    module = Exported(model, with_preprocessing=False)
    for opened in (export.open_onnx, export.open_torch):
        with pytest.raises(GcabError, match=r"b\.bin was not written, as the exported model does not run \(.+\)\."):
            save_checked(tmp_path / "b.bin", b"no model", module, {}, opened)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(model: ContinualClassifier, tmp_path: Path) -> None:
    for write in (export_onnx, export_torch):
        with pytest.raises(GcabError, match="is a folder: give the name of a file"):
            write(model, tmp_path)


def test_the_exported_module_is_a_copy(model: ContinualClassifier) -> None:
    module = Exported(model, with_preprocessing=False)
    own = {tensor.data_ptr() for tensor in model.method.state_dict().values() if tensor.numel()}
    assert not own & {tensor.data_ptr() for tensor in module.state_dict().values() if tensor.numel()}
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert any(parameter.requires_grad for parameter in model.method.parameters())
