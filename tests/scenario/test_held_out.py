"""Settings are chosen on images held out of the training images: the test images stay unread, and nobody is misled."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.settings import train_flags
from torch import Tensor

import gcab.runs.run
from gcab.cli.main import main
from gcab.config import resolve
from gcab.data.images import ImageSet, Split
from gcab.data.registry import dataset
from gcab.paper.evidence import reduced
from gcab.report.tables import accuracy_table
from gcab.runs.folder import RunFolder
from gcab.runs.run import load_data
from gcab.sizes import Size

SHORT = [*train_flags("finetune", {"training.epochs": 1, "training.batch_size": 64}), "--device", "cpu"]


def as_bytes(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def test_held_out_images_are_tested_on_and_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Split] = []
    info = dataset("digits")

    def load(root: Path | None, split: Split, size: Size) -> ImageSet:
        asked.append(split)
        return info.load(root, split, size)

    monkeypatch.setattr(gcab.runs.run, "dataset", lambda _: replace(info, load=load))
    data = load_data(resolve("digits/5", "gcab", changes={"scenario.validation": 0.25}), None)
    assert asked == ["train"]
    trained = [data.scenario.open(task, data.train).train() for task in data.scenario.tasks]
    assert len(data.test.labels) + sum(len(part.labels) for part in trained) == len(data.train.labels)
    assert len(data.test.labels) == pytest.approx(0.25 * len(data.train.labels), rel=0.05)
    seen = set[bytes]().union(*(as_bytes(part.images) for part in trained))
    assert not seen & as_bytes(data.test.images)


@pytest.mark.repeats
@pytest.mark.usefixtures("rough_embedding")
def test_everybody_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for share, name in (("0.25", "held-out"), ("0", "plain")):
        code = main(["train", "digits/5", *SHORT, "--scenario.validation", share, "--run", str(tmp_path / name)])
        assert code == 0
        said = " ".join(capsys.readouterr().out.split())
        assert ("On held-out training images." in said) == (name == "held-out")
    held_out, plain = RunFolder.open(tmp_path / "held-out"), RunFolder.open(tmp_path / "plain")
    assert accuracy_table([held_out, plain]).note.endswith("On held-out training images in some runs.")
    assert reduced([plain]) == "Reduced schedule: 1 epoch a task instead of 40"
    assert reduced([held_out]).endswith("instead of 40. Tested on held-out training images")
    assert reduced([plain, held_out]).endswith("instead of 40. Tested on held-out training images in some runs")
    assert main(["report", str(held_out.path)]) == 0
    assert "% of the held-out training images correctly" in held_out.report.read_text()
    assert main(["evaluate", str(held_out.path), "--device", "cpu"]) == 0
    measured = capsys.readouterr().out
    final = held_out.final()
    assert final is not None
    assert f"acc_tag: {final['acc_tag']:.2f} % (recorded {final['acc_tag']:.2f} %)" in measured
