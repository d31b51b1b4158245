"""The Python interface: learns in steps, keeps what it knows when something fails, and comes back from disk."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.settings import TINY_GCAB, tiny, train_flags
from PIL import Image
from sklearn.datasets import load_digits

import gcab
from gcab import ContinualClassifier
from gcab.classifier.calibration import Calibration
from gcab.classifier.logits import logits_of
from gcab.classifier.model_folder import ModelFolder
from gcab.cli.main import main
from gcab.data.arrays import as_images
from gcab.errors import GcabError
from gcab.methods.gcab import Gcab
from gcab.methods.method import Method
from gcab.training.trainer import Epoch

pytestmark = pytest.mark.repeats

SMALL = {**TINY_GCAB, "training.batch_size": 8}
IMAGES = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
FIRST = ["ash", "elm"] * 12
SECOND = ["fir", "oak", "yew"] * 8


def classifier(method: str = "gcab", **changes: Any) -> ContinualClassifier:
    settings = {**tiny(method), "training.batch_size": 8}
    return ContinualClassifier(method, **{"epochs": 1, "device": "cpu", "settings": settings, **changes})


def taught(**changes: Any) -> ContinualClassifier:
    return classifier(**changes).learn(IMAGES, FIRST)


def same_weights(one: ContinualClassifier, other: ContinualClassifier) -> bool:
    ours, theirs = one.method.state_dict(), other.method.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_example_of_the_documentation() -> None:
    """gcab/learner.py's opening lines, on digits."""
    pixels, digits = load_digits(return_X_y=True)
    pixels = pixels.reshape(-1, 8, 8) / 16
    test = np.arange(len(digits)) % 5 == 0
    early, late = (digits < 2) & ~test, ((digits == 2) | (digits == 3)) & ~test
    images, labels, new_images, new_labels = pixels[early], digits[early], pixels[late], digits[late]

    assert "model.learn(new_images, new_labels)" in (gcab.classifier.learner.__doc__ or "")
    model = ContinualClassifier(epochs=3, seed=1)
    model.learn(images, labels)  # the first classes
    model.learn(new_images, new_labels)  # more classes; the first images are no longer needed
    chosen = test & (digits < 4)
    predicted = model.predict(pixels[chosen])
    assert predicted.dtype == digits.dtype
    for known in (digits[chosen] < 2, digits[chosen] >= 2):  # both the old and the new
        assert (predicted == digits[chosen])[known].mean() > 0.7


def test_classes_arrive_in_steps() -> None:
    model = classifier()
    assert model.classes == []
    assert model.learn(IMAGES, FIRST) is model
    assert model.classes == ["ash", "elm"]
    model.learn(IMAGES, SECOND)
    assert model.classes == ["ash", "elm", "fir", "oak", "yew"]
    probabilities = model.predict_proba(IMAGES)
    assert probabilities.shape == (24, 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    best = [model.classes[index] for index in probabilities.argmax(axis=1)]
    assert model.predict(IMAGES).tolist() == best


@pytest.mark.parametrize("method", ["gcab", "finetune", "er"])
def test_every_method_that_learns_in_steps(method: str) -> None:
    model = classifier(method).learn(IMAGES, FIRST).learn(IMAGES, SECOND)
    assert model.predict(IMAGES).shape == (24,)


def test_joint_training_is_refused() -> None:
    model = classifier("joint")
    with pytest.raises(GcabError, match="joint needs all images at once"):
        model.learn(IMAGES, FIRST)
    assert model.classes == []


@pytest.mark.parametrize("labels", [[10, 9, 2] * 8, np.array([10, 9, 2] * 8), torch.tensor([10, 9, 2] * 8)])
def test_whole_numbers_stay_whole_numbers(labels: Any) -> None:
    model = classifier().learn(IMAGES, labels)
    assert model.classes == [2, 9, 10]
    assert model.predict(IMAGES).dtype.kind == "i"


def test_numpy_text_becomes_plain_text() -> None:
    model = classifier().learn(IMAGES, np.array(FIRST))
    assert [type(name) for name in model.classes] == [str, str]
    assert model.predict(IMAGES).dtype.kind == "U"


def test_the_seed_decides_everything() -> None:
    torch.manual_seed(1)
    one = taught()
    torch.manual_seed(2)
    assert same_weights(one, taught())
    assert not same_weights(one, taught(seed=2))


def test_progress_is_reported() -> None:
    seen: list[Epoch] = []
    classifier(epochs=3).learn(IMAGES, FIRST, progress=seen.append)
    assert [epoch.number for epoch in seen] == [1, 2, 3]
    assert all("classification" in epoch.losses for epoch in seen)


def test_the_first_images_decide_the_size() -> None:
    model = taught()
    model.learn(np.zeros((24, 30, 40), np.uint8), SECOND)
    assert model.predict([Image.new("RGB", (100, 50))]).shape == (1,)
    large = classifier(image_size=16).learn(IMAGES, FIRST)
    assert large.predict(IMAGES).shape == (24,)


def test_a_folder_with_a_subfolder_per_class(tmp_path: Path) -> None:
    for index, (name, pixels) in enumerate(zip(FIRST, IMAGES, strict=True)):
        (tmp_path / name).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / name / f"{index}.png")
    model = classifier().learn(tmp_path)
    assert model.classes == ["ash", "elm"]
    assert classifier().learn(str(tmp_path)).classes == model.classes
    predicted = model.predict(sorted(tmp_path.rglob("*.png")))
    assert predicted.shape == (24,)
    with pytest.raises(GcabError, match=r"'.*nowhere' of data set 'folder' does not exist"):
        classifier().learn(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("images", "labels", "expected"),
    [
        (IMAGES, None, "labels are missing"),
        (IMAGES, FIRST[:5], "24 images but 5 labels"),
        (IMAGES, [1, 2] * 12, "some labels are text and some are whole numbers"),
        (IMAGES, ["fir", 2] * 12, "some labels are text and some are whole numbers"),
        (IMAGES, [0.5, 1.5] * 12, "label 0.5 is a float"),
        (IMAGES, [True, False] * 12, "label True is a bool"),
        (IMAGES, np.zeros((24, 2), int), r"label \[0, 0\] is a list"),
        (IMAGES, 7, "labels must be a list or an array, not int"),
        (IMAGES, "fo" * 12, "labels must be a list or an array, not str"),
        ([], [], "no images were given"),
        (None, SECOND, "not NoneType"),
        (IMAGES.astype(float), SECOND, "between 0 and 1"),
        (["nowhere.png"] * 24, SECOND, "cannot be opened"),
    ],
)
def test_a_refused_lesson_leaves_the_model_as_it_was(images: Any, labels: Any, expected: str) -> None:
    model = taught()
    before = model.predict_proba(IMAGES)
    with pytest.raises(GcabError, match=expected):
        model.learn(images, labels)
    assert model.classes == ["ash", "elm"]
    np.testing.assert_array_equal(model.predict_proba(IMAGES), before)
    assert same_weights(model.learn(IMAGES, SECOND), taught().learn(IMAGES, SECOND))


def test_a_failure_halfway_leaves_the_model_as_it_was() -> None:
    def fail(epoch: Epoch) -> None:
        raise RuntimeError(f"in epoch {epoch.number}")

    model = taught()
    with pytest.raises(RuntimeError, match="in epoch 1"):
        model.learn(IMAGES, SECOND, progress=fail)
    assert same_weights(model, taught())
    assert model.classes == ["ash", "elm"]
    assert same_weights(model.learn(IMAGES, SECOND), taught().learn(IMAGES, SECOND))


def test_a_failed_first_lesson_does_not_decide_the_size() -> None:
    def fail(_: Epoch) -> None:
        raise RuntimeError

    model = classifier()
    with pytest.raises(RuntimeError):
        model.learn(np.zeros((24, 32, 32), np.uint8), FIRST, progress=fail)
    assert same_weights(model.learn(IMAGES, FIRST), taught())


def test_a_loss_that_explodes_leaves_the_model_as_it_was() -> None:
    model = classifier(epochs=2, settings={**SMALL, "training.lr": 1e30, "training.warmup_epochs": 0})
    with pytest.raises(GcabError, match=r"the loss became .* in task 1, epoch 1, step"):
        model.learn(IMAGES, FIRST)
    with pytest.raises(GcabError, match="learned nothing yet"):
        model.predict(IMAGES)


def test_nothing_learned_nothing_told_nothing_saved(tmp_path: Path) -> None:
    for call in (classifier().predict, classifier().predict_proba):
        with pytest.raises(GcabError, match="learned nothing yet: call learn first"):
            call(IMAGES)
    with pytest.raises(GcabError, match="nothing to save"):
        classifier().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"method": "gcb"}, "unknown method 'gcb': did you mean 'gcab'"),
        ({"encoder": "huge"}, "unknown encoder 'huge'"),
        ({"image_size": 12}, "image_size is 12: give a multiple of 8 from 8 to 384"),
        ({"image_size": 0}, "image_size is 0"),
        ({"epochs": 0}, "training.epochs is 0"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"settings": {"training.epoch": 3}}, "did you mean 'training.epochs'"),
        ({"settings": {"training.lr": "fast"}}, "training.lr cannot be 'fast'"),
        ({"settings": {"encoder.width": 10}}, "encoder.width 10 is not a multiple"),
        ({"settings": {"encoder.patch": 4}}, "encoder.patch follows from image_size"),
        ({"settings": {"scenario.image_size": 16}}, "scenario.image_size follows from image_size"),
    ],
)
def test_impossible_wishes(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(GcabError, match=expected):
        classifier(**changes)


@pytest.mark.parametrize("method", ["gcab", "finetune", "er"])
def test_a_saved_model_comes_back_bit_for_bit_and_learns_on(method: str, tmp_path: Path) -> None:
    model = classifier(method).learn(IMAGES, FIRST)
    model.save(tmp_path / "model")
    loaded = ContinualClassifier.load(tmp_path / "model", device="cpu")
    assert loaded.classes == ["ash", "elm"]
    assert same_weights(loaded, model)
    np.testing.assert_array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))
    assert same_weights(loaded.learn(IMAGES, SECOND), model.learn(IMAGES, SECOND))
    np.testing.assert_array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))


def test_numbers_come_back_as_numbers(tmp_path: Path) -> None:
    classifier().learn(IMAGES, [1, 2] * 12).save(str(tmp_path / "model"))
    loaded = ContinualClassifier.load(str(tmp_path / "model"))
    assert loaded.classes == [1, 2]
    assert loaded.learn(IMAGES, [30, 4] * 12).classes == [1, 2, 4, 30]


def test_no_image_is_saved(tmp_path: Path) -> None:
    model = taught()
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "weights.safetensors"]
    assert IMAGES[0, 0].tobytes() not in (tmp_path / "model" / "weights.safetensors").read_bytes()


def test_a_newer_model_takes_the_place_of_an_older(tmp_path: Path) -> None:
    model = taught()
    model.save(tmp_path / "model")
    model.learn(IMAGES, SECOND).save(tmp_path / "model")
    assert len(ContinualClassifier.load(tmp_path / "model").classes) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_trained_on_the_command_line_is_loaded_and_taught_more(tmp_path: Path) -> None:
    small = train_flags("gcab", {"training.epochs": 1})
    assert main(["train", "digits/5", *small, "--run", str(tmp_path / "run")]) == 0
    model = ContinualClassifier.load(tmp_path / "run" / "model")
    assert model.classes == list("0123456789")
    assert model.predict(IMAGES).shape == (24,)
    assert len(model.learn(IMAGES, FIRST).classes) == 12


def test_models_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match="there is no model in"):
        ContinualClassifier.load(tmp_path / "nowhere")
    taught().save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    (tmp_path / "model" / "model.json").write_text(json.dumps({**document, "format": 99}))
    with pytest.raises(GcabError, match="has model format 99"):
        ContinualClassifier.load(tmp_path / "model")


@pytest.mark.parametrize("change", [{"tasks": [["only one"]]}, {"tasks": None}, {"config": {}}])
def test_a_description_that_does_not_fit_its_weights(change: dict[str, Any], tmp_path: Path) -> None:
    taught().save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    (tmp_path / "model" / "model.json").write_text(json.dumps({**document, **change}))
    with pytest.raises(GcabError, match="damaged"):
        ContinualClassifier.load(tmp_path / "model")


def test_held_out_images_stop_calibrate_and_measure() -> None:
    seen: list[Epoch] = []
    model = classifier(epochs=60).learn(IMAGES, FIRST, seen.append, held_out=0.25, patience=2)
    [taught] = model.taught
    assert (taught.classes, taught.images, taught.held_out) == (2, 18, 6)
    assert taught.accuracy is not None
    assert taught.epochs == len(seen) < 60
    assert model.calibration.images == 24  # each of the others can be left out
    logits = model.logits(IMAGES)
    assert (logits.shape, logits.dtype) == ((24, 2), torch.float32)
    expected = (logits / model.calibration.temperature).softmax(dim=1)
    np.testing.assert_allclose(model.predict_proba(IMAGES), expected, rtol=1e-4)
    few = classifier("finetune").learn(IMAGES, FIRST, held_out=0.25)
    assert few.unknown(IMAGES).tolist() == [0] * 24  # six images cannot tell
    many = classifier().learn(np.concatenate([IMAGES, 255 - IMAGES]), FIRST * 2, held_out=0.5)
    unknown = many.unknown(IMAGES)
    assert unknown.shape == (24,)
    assert unknown.max() > 0


def test_a_class_that_reads_like_a_known_one_was_learned_before() -> None:
    model = classifier().learn(IMAGES, ["caf\u00e9"] * 12 + ["elm"] * 12)
    with pytest.raises(GcabError, match="was learned before"):
        classifier("finetune").learn(IMAGES, ["caf\u00e9"] * 12 + ["elm"] * 12).learn(
            IMAGES, ["cafe\u0301", "oak"] * 12
        )
    assert model.learn(IMAGES, ["Elm"] * 12 + ["oak"] * 12).classes == ["caf\u00e9", "elm", "Elm", "oak"]
    assert model.learn(IMAGES, ["cafe\u0301"] * 12 + ["yew"] * 12).classes == ["caf\u00e9", "elm", "Elm", "oak", "yew"]
    assert model.taught[-1].again == ("caf\u00e9",)


def test_what_was_measured_before_a_lesson_is_not_said_of_the_model_after_it() -> None:
    many, labels = np.concatenate([IMAGES, 255 - IMAGES]), FIRST * 2
    model = classifier().learn(many, labels, held_out=0.5)
    temperature = model.calibration.temperature
    assert model.calibration.expected_calibration_error is not None
    model.learn(IMAGES, SECOND)
    assert model.calibration == Calibration(temperature)
    assert model.unknown(many).max() == 0
    model.learn(IMAGES, ["asp"] * 12 + ["box"] * 12, held_out=0.5)
    assert (model.calibration.newest, model.calibration.images) == (5, 24)


def test_whatever_progress_returns_does_not_stop_it() -> None:
    assert taught(epochs=3).taught[0].epochs == 3
    model = classifier(epochs=3).learn(IMAGES, FIRST, progress=lambda epoch: epoch.number)
    assert model.taught[0].epochs == 3


def test_what_a_model_says_about_itself() -> None:
    model = classifier()
    with pytest.raises(GcabError, match="the size of the images is not known yet"):
        _ = model.image_size
    with pytest.raises(GcabError, match="learned nothing yet"):
        _ = model.method
    model.learn(IMAGES, FIRST).learn(IMAGES, SECOND)
    assert [(task.index, task.first, task.names) for task in model.tasks] == [
        (0, 0, ("ash", "elm")),
        (1, 2, ("fir", "oak", "yew")),
    ]
    assert (model.image_size, model.generation) == (8, None)
    assert model.method is model.known.method
    assert model.taught[1].accuracy is None
    assert model.unknown(IMAGES[:2]).tolist() == [0, 0]


def test_settings_for_the_tasks_to_come() -> None:
    model = taught()
    assert model.configure(epochs=2, settings={"training.lr": 1e-4}) is model
    model.learn(IMAGES, SECOND)
    assert [entry.epochs for entry in model.taught] == [1, 2]
    with pytest.raises(GcabError, match=r"encoder\.width is 16 since this model's first task"):
        model.configure(settings={"encoder.width": 32})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"taught": [3, 4]}, r"damaged \(taught\.0 is 3"),
        ({"taught": []}, r"damaged \(taught has other numbers of classes"),
        ({"labels": ["ash"]}, r"damaged \(labels has 1 entries for 2 classes"),
        ({"calibration": {"temperature": 0}}, r"damaged \(calibration\.temperature is 0"),
    ],
)
def test_records_that_are_damaged(change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    taught().save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    (tmp_path / "model" / "model.json").write_text(json.dumps({**document, **change}))
    with pytest.raises(GcabError, match=expected):
        ContinualClassifier.load(tmp_path / "model")


def test_a_later_version_may_record_more(tmp_path: Path) -> None:
    taught().save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    document["taught"][0]["weather"] = "fine"
    (tmp_path / "model" / "model.json").write_text(json.dumps({**document, "mood": "good"}))
    assert ContinualClassifier.load(tmp_path / "model").taught[0].epochs == 1


def test_what_no_image_changes_is_computed_once_until_more_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    model, intact = taught(), Gcab.predictor
    made: list[Method] = []

    def counted(self: Gcab) -> torch.nn.Module:
        made.append(self)
        return intact(self)

    monkeypatch.setattr(Gcab, "predictor", counted)
    with torch.autocast("cpu", torch.bfloat16):
        model.predict(IMAGES)  # a predictor made meanwhile must not keep the caller's precision
    before = model.logits(IMAGES)
    assert made == [model.method]
    monkeypatch.undo()
    torch.testing.assert_close(before, logits_of(model.method, as_images(IMAGES, 8), model.device), rtol=0, atol=0)
    assert model.learn(IMAGES, SECOND).logits(IMAGES).shape == (len(IMAGES), 5)


def test_a_model_that_learned_is_no_longer_the_one_that_was_loaded(tmp_path: Path) -> None:
    taught().save(tmp_path / "model")
    model = ContinualClassifier.load(tmp_path / "model", device="cpu")
    assert (model.generation, model.digest) == (0, ModelFolder(tmp_path / "model").digest)
    model.learn(IMAGES, SECOND)
    assert (model.generation, model.digest) == (None, None)


def test_the_package_offers_the_classifier() -> None:
    assert gcab.ContinualClassifier is ContinualClassifier
    with pytest.raises(AttributeError, match="Classifier"):
        _ = gcab.Classifier
