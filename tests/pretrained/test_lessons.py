"""Models with a pretrained encoder, from the first lesson to export and server."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from helpers.commands import refusal, succeeds
from helpers.encoders import onnx_encoder
from helpers.photos import WEEK1, WEEK2, make_photos, pictures

from gcab import ContinualClassifier, ModelFolder, teach
from gcab.classifier.audit import audit
from gcab.classifier.overview import overview
from gcab.classifier.plan import plan
from gcab.errors import GcabError
from gcab.methods.frozen import Frozen
from gcab.pretrained import onnx_file
from gcab.pretrained.vision_transformer import VisionTransformer
from gcab.runs.assemble import load_method
from gcab.serve.served import Inference, ServedModel
from gcab.sizes import sides


def lesson(root: Path, names: tuple[str, ...], seed: int = 0) -> Path:
    return make_photos(root, names, count=6, side=40, seed=seed)


def learned(model: Path, root: Path, encoder: Path) -> Path:
    """Two lessons; the encoder is gone after the first."""
    gone = root / encoder.name
    (shutil.copytree if encoder.is_dir() else shutil.copyfile)(encoder, gone)
    teach(model, lesson(root / "1", WEEK1), encoder=str(gone), device="cpu")
    (shutil.rmtree if encoder.is_dir() else Path.unlink)(gone)
    teach(model, lesson(root / "2", WEEK2), device="cpu")
    return model


def answers(model: ContinualClassifier) -> list[str]:
    return [str(model.predict(pictures(name, 4, 40, seed=9))[0]) for name in (*WEEK1, *WEEK2)]


@pytest.mark.repeats
def test_lessons_need_the_encoder_once(encoder: Path, tmp_path: Path) -> None:
    """Every class is told from every other, the model says whose encoder it has, and undo takes a lesson back."""
    model = learned(tmp_path / "m", tmp_path, encoder)
    loaded = ContinualClassifier.load(model, "cpu")
    assert answers(loaded) == [*WEEK1, *WEEK2]
    assert (loaded.config.method, loaded.config.encoder.kind, loaded.image_size) == (
        "frozen",
        "pretrained",
        40 if encoder.is_dir() else 36,
    )
    facts = overview(model)["pretrained"]
    assert facts["origin"] == encoder.name
    assert facts["licence"] == ("apache-2.0" if encoder.is_dir() else "unknown: look before you ship")
    found = audit(model)
    assert found.images == 0
    assert not found.strangers
    assert all("unknown" not in stored.purpose for stored in found.tensors)
    assert ModelFolder(model).undo() == 1
    assert answers(ContinualClassifier.load(model, "cpu"))[:2] == [*WEEK1]


def test_order_and_splits_change_nothing(dino: Path) -> None:
    """Classes apart or together: the same sums, to the last bit."""
    apart, together = (ContinualClassifier(encoder=str(dino), device="cpu") for _ in range(2))
    photos = {name: pictures(name, 5, 40) for name in "abcd"}
    for names in ("ab", "cd"):
        apart.learn(np.concatenate([photos[name] for name in names]), [name for name in names for _ in range(5)])
    together.learn(np.concatenate(list(photos.values())), [name for name in photos for _ in range(5)])
    own, its = apart.method.state_dict(), together.method.state_dict()
    assert all(torch.equal(own[name], its[name]) for name in own)


def test_a_class_is_forgotten_and_models_are_merged(dino: Path, graph: Path) -> None:
    def model(names: str, encoder: Path = dino) -> ContinualClassifier:
        made = ContinualClassifier(encoder=str(encoder), device="cpu")
        return made.learn(
            np.concatenate([pictures(name, 5, 40) for name in names]), [name for name in names for _ in range(5)]
        )

    whole, parts = model("abcd"), model("ab").merge(model("cd"))
    assert torch.equal(whole.method.state_dict()["eye.ridge.gram"], parts.method.state_dict()["eye.ridge.gram"])
    whole.forget("d", pictures("d", 5, 40))
    fewer = model("abc").method.state_dict()
    assert all(torch.equal(value, fewer[name]) for name, value in whole.method.state_dict().items())
    with pytest.raises(GcabError, match="different encoders"):
        parts.merge(model("ef", graph))
    with pytest.raises(GcabError, match="only models of the method eye or frozen"):
        parts.merge(ContinualClassifier("eye", settings={"options.features": 64}, image_size=40, device="cpu").learn(
            pictures("e", 4, 40), ["e"] * 4))  # fmt: skip


def test_another_encoder_is_refused_and_nothing_lost(
    dino: Path, vit: Path, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, more, model = lesson(tmp_path / "1", WEEK1), lesson(tmp_path / "2", WEEK2), tmp_path / "m"
    learn = ("learn", model, photos, "--device", "cpu", "--encoder")
    two = onnx_encoder(tmp_path / "two.onnx", inputs=2)
    for encoder, sentence in ((tmp_path, "no config.json"), (two, "2 inputs"), ("tinny", "unknown encoder 'tinny'")):
        assert sentence in refusal(capsys, *learn, encoder)
        assert not model.exists()
    succeeds(capsys, *learn, dino, "--progress", "none")
    before = ModelFolder(model).digest
    for encoder in (vit, graph, "tiny"):
        said = refusal(capsys, "learn", model, more, "--encoder", encoder)
        assert said == f"this model's encoder is tiny-dino since its first task: it cannot change to {encoder}."
    assert ModelFolder(model).digest == before
    moved = shutil.copytree(dino, tmp_path / "moved")
    succeeds(capsys, "learn", model, more, "--encoder", moved, "--device", "cpu", "--progress", "none")
    told = " ".join(succeeds(capsys, "info", model).split())
    assert "frozen encoder tiny-dino (dinov2)" in told
    assert "encoder: licence apache-2.0; SHA-256" in told
    assert "it sees the centre 32 of 40 pixels, less 0.4, 0.5, 0.6, divided by 0.2, 0.25, 0.3: from pre" in told


def test_a_model_of_another_kind_takes_no_pretrained_encoder(
    dino: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, model = lesson(tmp_path / "1", WEEK1), tmp_path / "m"
    teach(model, photos, method="eye", settings={"options.features": 64}, device="cpu")
    said = refusal(capsys, "learn", model, lesson(tmp_path / "2", WEEK2), "--encoder", dino)
    assert "this model's encoder is tiny since its first task" in said


def test_a_damaged_description_is_refused(dino: Path, tmp_path: Path) -> None:
    model = tmp_path / "m"
    teach(model, lesson(tmp_path / "1", WEEK1), encoder=str(dino), device="cpu")
    [place] = ModelFolder(model).generations().values()
    whole = json.loads((place / "model.json").read_text())
    heads = {**whole["pretrained"]["shape"], "heads": 3}
    changes: list[dict[str, Any]] = [{"shape": {}}, {"crop": 0}, {"crop": 99}, {"kind": "onnx"}, {"shape": heads}]
    for change in changes:
        (place / "model.json").write_text(json.dumps({**whole, "pretrained": {**whole["pretrained"], **change}}))
        with pytest.raises(GcabError, match="damaged"):
            load_method(place)
    (place / "model.json").write_text(json.dumps({key: value for key, value in whole.items() if key != "pretrained"}))
    with pytest.raises(GcabError, match="damaged"):
        load_method(place)


@pytest.mark.varied
@pytest.mark.usefixtures("plain_translation")
def test_an_exported_file_contains_the_encoder(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One is traced, the other joined with what comes before it and behind it: with preprocessing, to have both."""
    model, with_preprocessing = learned(tmp_path / "m", tmp_path, encoder), not encoder.is_dir()
    flags = ["--with-preprocessing"] if with_preprocessing else []
    succeeds(capsys, "export", model, tmp_path / "m.onnx", *flags)
    loaded = ContinualClassifier.load(model, "cpu")
    side, _ = sides(loaded.image_size)
    photos = np.stack([pictures(name, 1, side, seed=9)[0] for name in (*WEEK1, *WEEK2)])
    ready = photos
    if not with_preprocessing:
        ready = loaded.method.setting.normalise(torch.from_numpy(photos).permute(0, 3, 1, 2)).numpy()
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    _, probabilities, _ = session.run(None, {"images": ready})
    np.testing.assert_allclose(probabilities, loaded.predict_proba(photos), atol=1e-4)


def test_torch_export_holds_no_onnx_graph(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teach(tmp_path / "m", lesson(tmp_path / "1", WEEK1), encoder=str(graph), device="cpu")
    assert "export it to .onnx" in refusal(capsys, "export", tmp_path / "m", tmp_path / "m.pt2")


def test_a_graph_is_served_without_a_compiler(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(tmp_path / "m", lesson(tmp_path / "1", WEEK1), encoder=str(graph), device="cpu")
    monkeypatch.setattr(torch, "compile", None)
    ServedModel.load(tmp_path / "m", Inference("cpu", compiled=True))


def test_a_server_answers_as_the_model_does(encoder: Path, tmp_path: Path) -> None:
    model = learned(tmp_path / "m", tmp_path, encoder)
    served = ServedModel.load(model, Inference("cpu"))
    photos = torch.from_numpy(pictures("ring", 2, *sides(served.image_size), seed=9)).permute(0, 3, 1, 2).contiguous()
    loaded = ContinualClassifier.load(model, "cpu")
    for score, expected in zip(served.scores(photos, [False] * 2), loaded.predict_proba(photos), strict=True):
        np.testing.assert_allclose(score.probabilities, expected, atol=1e-6)


def test_projections_stand_beside_the_features(dino: Path) -> None:
    model = ContinualClassifier(encoder=str(dino), settings={"options.features": 100}, device="cpu")
    model.learn(np.concatenate([pictures(name, 5, 40) for name in "ab"]), ["a"] * 5 + ["b"] * 5)
    assert isinstance(model.method, Frozen)
    features = model.method.extractor(torch.from_numpy(pictures("a", 2, 40)).permute(0, 3, 1, 2))
    assert features.shape == (2, 2 * 32 + 100)
    assert torch.equal(features, features.round())
    own, projected = features.split([64, 100], dim=1)
    again = (own @ model.method.extractor.signs.float().T).relu() / 8
    assert (again - projected).abs().max() < 6  # but for the rounding
    assert model.predict(pictures("b", 1, 40, seed=5))[0] == "b"


def test_gates_and_heads_learn_on_frozen_tokens(dino: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's method with an encoder that stays as it is, and looks at each photo once a lesson."""
    seen: list[int] = []
    look = VisionTransformer.look

    def watched(encoder: VisionTransformer, images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return look(encoder, images)

    monkeypatch.setattr(VisionTransformer, "look", watched)
    model = ContinualClassifier("gcab", encoder=str(dino), epochs=2, settings={"options.eye": 0}, device="cpu")
    model.learn(np.concatenate([pictures(name, 8, 40) for name in "ab"]), ["a"] * 8 + ["b"] * 8)
    encoder = {name: value.clone() for name, value in model.method.state_dict().items() if "encoder." in name}
    model.learn(np.concatenate([pictures(name, 8, 40) for name in "cd"]), ["c"] * 8 + ["d"] * 8)
    after = model.method.state_dict()
    assert encoder
    assert all(torch.equal(value, after[name]) for name, value in encoder.items())
    assert sum(seen) == 2 * 16
    model.save(tmp_path / "m")
    assert ContinualClassifier.load(tmp_path / "m", "cpu").predict(pictures("c", 1, 40)).shape == (1,)


@pytest.mark.parametrize("photos", [12, 120])
def test_the_start_of_an_encoder_is_not_estimated_for_every_photo(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: int
) -> None:
    """By a clock that only the encoder moves: 60 seconds to open it, half a second for each photo."""
    now, opens, runs = [0.0], onnx_file.session_of, onnx_file.run_graph

    def session_of(content: bytes) -> Any:
        now[0] += 60
        return opens(content)

    def run_graph(session: Any, shape: onnx_file.GraphShape, images: torch.Tensor) -> torch.Tensor:
        now[0] += 0.5 * len(images)
        return runs(session, shape, images)

    folder = make_photos(tmp_path / "photos", WEEK1, count=photos // 2, side=40)
    events: list[dict[str, Any]] = []
    with monkeypatch.context() as patched:
        patched.setattr(onnx_file, "session_of", session_of)
        patched.setattr(onnx_file, "run_graph", run_graph)
        patched.setattr("time.perf_counter", lambda: now[0])
        dry = plan(tmp_path / "m", folder, encoder=str(graph), held_out=0.0, device="cpu").estimated_seconds
        teach(tmp_path / "m", folder, encoder=str(graph), held_out=0.0, device="cpu", progress=events.append)
    [start] = [event for event in events if event["event"] == "start"]
    assert start["estimated_seconds"] == pytest.approx(0.5 * photos, abs=1)  # it was opened to tell
    assert dry == pytest.approx(60 + 0.5 * photos, abs=5)
