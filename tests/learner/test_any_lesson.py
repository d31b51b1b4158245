"""Lessons as they come: one class alone, more photos of known classes, few photos, and classes of unequal size."""

import numpy as np
import pytest
import torch
from helpers.eyes import many, network, pictures, same
from helpers.photos import Pixels
from torch import Tensor

from gcab import ContinualClassifier
from gcab.methods.gcab import Gcab
from gcab.model.referee import EYE, HEADS
from gcab.model.triangle import symmetric

pytestmark = pytest.mark.repeats

FIRST = many(0, 1, count=12)
LESSONS = {
    "one class": many(2, count=12),
    "more of one": many(0, count=12, seed=1),
    "more of all": many(0, 1, count=12, seed=1),
    "one and more": many(1, 2, count=12, seed=1),
    "two and more": many(0, 2, 3, count=12, seed=1),
}
QUICK = {"options.distillation_steps": 3, "options.views": 1}


def gcab_of(model: ContinualClassifier) -> Gcab:
    assert isinstance(model.method, Gcab)
    return model.method


def weights_of(model: ContinualClassifier) -> list[float]:
    referee = gcab_of(model).referee
    assert referee is not None
    return referee.weights.tolist()


def ready(model: ContinualClassifier, pixels: Pixels) -> Tensor:
    return model.method.setting.normalise(torch.from_numpy(pixels).permute(0, 3, 1, 2))


def heads(model: ContinualClassifier, pixels: Pixels) -> Tensor:
    """What the heads alone say."""
    images, method = ready(model, pixels), gcab_of(model)
    with torch.no_grad():
        return method.parts()[HEADS](images, method.features(images))


@pytest.mark.parametrize("kind", LESSONS)
def test_the_eye_and_the_statistics_learn_from_every_photo(kind: str) -> None:
    model = network().learn(*FIRST, held_out=0.25)
    before = {name: value.clone() for name, value in gcab_of(model).network.encoder.state_dict().items()}
    model.learn(*LESSONS[kind], held_out=0.25)
    given = np.array([*FIRST[1], *LESSONS[kind][1]])
    method = gcab_of(model)
    assert method.image_counts() == [int((given == name).sum()) for name in model.classes]
    assert int(method.statistics.images) == 0.75 * len(given)
    after = method.network.encoder.state_dict()
    trained = kind == "two and more"
    assert any(not torch.equal(value, after[name]) for name, value in before.items()) == trained
    assert model.taught[-1].epochs == (2 if trained else 0)
    assert model.score(*many(*range(len(model.classes)), seed=9)) > 0.9


def test_statistics_of_two_lessons_are_those_of_all_photos_at_once() -> None:
    """While the network stands still: μ and W of the photos of a class in two lessons are those of them all."""
    method = gcab_of(model := network().learn(*FIRST).learn(*many(0, count=5, seed=1)))
    images = ready(model, np.concatenate([FIRST[0], pictures(0, 5, seed=1)]))
    labels = torch.tensor([0] * 12 + [1] * 12 + [0] * 5)
    with torch.no_grad():
        pooled = method.statistics.pool(method.features(images))
    means = torch.stack([pooled[labels == label].mean(dim=0) for label in (0, 1)])
    assert torch.allclose(method.statistics.means, means, atol=1e-5)
    spread = (pooled - means[labels]).flatten(1).double()
    assert torch.allclose(symmetric(method.statistics.scatter).double(), spread.T @ spread, atol=1e-3)


def test_one_class_alone_has_a_head_that_tells_nothing_and_takes_no_unit() -> None:
    model = network().learn(*FIRST, held_out=0.25)
    used = gcab_of(model).capacity()
    model.learn(*LESSONS["one class"], held_out=0.25)
    said = heads(model, many(0, 1, 2, seed=4)[0])
    assert said.isfinite().all()
    assert said[:, 2].unique().numel() == 1
    rivals = heads(model, LESSONS["one class"][0])[:, :2].max(dim=1).values
    assert rivals.min() <= said[0, 2] <= rivals.max()
    assert gcab_of(model).capacity() == used


def test_a_model_may_begin_with_one_class_and_go_on_one_by_one() -> None:
    model = network()
    for label in range(4):
        model.learn(*many(label, count=8), held_out=0.25)
        assert model.predict_proba(pictures(label)).shape == (6, label + 1)
    assert [entry.epochs for entry in model.taught] == [0] * 4
    assert model.score(*many(0, 1, 2, 3, seed=5)) == 1.0


@pytest.mark.parametrize("kind", LESSONS)
@pytest.mark.parametrize("held_out", [0.0, 0.25])
def test_models_of_such_lessons_come_back_from_disk(
    kind: str, held_out: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = network().learn(*FIRST, held_out=held_out).learn(*LESSONS[kind], held_out=held_out)
    model.learn(*many(4, 5), held_out=held_out).learn(*many(4, 6), held_out=held_out)
    folder = tmp_path_factory.mktemp("models") / "model"
    model.save(folder)
    again = ContinualClassifier.load(folder, "cpu")
    assert same(again, model)
    assert again.taught == model.taught


@pytest.mark.parametrize("counts", [(3, 3), (1, 3), (20, 3), (3, 20)])
def test_few_photos_and_classes_of_unequal_size(counts: tuple[int, int]) -> None:
    images = np.concatenate([pictures(label, count) for label, count in enumerate(counts)])
    labels = [*"a" * counts[0], *"b" * counts[1]]
    model = network().learn(images, labels, held_out=0.2)
    model.learn(images + 40, [{"a": "c", "b": "d"}[name] for name in labels], held_out=0.2)
    assert model.classes == [*"abcd"]
    assert model.predict(pictures(0, seed=3)).tolist() == ["a"] * 6
    assert model.predict(pictures(1, seed=3) + 40).tolist() == ["d"] * 6


def test_without_held_out_photos_of_new_classes_the_eye_decides() -> None:
    model = network().learn(*FIRST, held_out=0.25)
    gcab_of(model).get_submodule("referee").get_buffer("weights").fill_(1.0)
    model.learn(*many(0, count=3, seed=1))
    assert weights_of(model) == [1.0, 1.0, 1.0]  # the network is what it was
    model.learn(*many(2, 3, count=3))
    assert weights_of(model) == [float(name == EYE) for name in gcab_of(model).opinions()]


def test_classes_can_be_forgotten_and_joined_afterwards() -> None:
    model = network().learn(*FIRST).learn(*LESSONS["one class"]).learn(*LESSONS["more of one"])
    model.join("a", "c")
    assert gcab_of(model).image_counts() == [36, 12]
    model.learn(*many(3))
    model.forget("d")
    model.forget("a")
    assert model.classes == ["b"]
    assert model.learn(*many(2, 4)).predict(pictures(4)).tolist() == ["e"] * 6


def test_a_distilled_model_takes_such_lessons_without_distilling_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = network().learn(*FIRST, held_out=0.25).learn(*LESSONS["two and more"], held_out=0.25)
    model.distill(*LESSONS["two and more"], settings=QUICK)
    asked = many(0, 1, 2, 3, seed=4)[0]
    before = heads(model, asked)
    for lesson in (many(4, count=12), many(0, 5, count=12, seed=3), many(1, seed=3)):
        model.learn(*lesson, held_out=0.25)
        assert torch.allclose(heads(model, asked)[:, :4], before, atol=1e-5)
        assert gcab_of(model).network.tasks == 1
    folder = tmp_path_factory.mktemp("models") / "model"
    model.save(folder)
    assert same(ContinualClassifier.load(folder, "cpu"), model)
    assert model.learn(*many(6, 7), held_out=0.25).classes == [*"abcdefgh"]


@pytest.mark.parametrize("kind", LESSONS)
def test_photos_of_the_last_lesson_distil_a_model(kind: str) -> None:
    model = network().learn(*FIRST, held_out=0.25).learn(*LESSONS[kind], held_out=0.25)
    model.distill(*LESSONS[kind], settings=QUICK)
    assert gcab_of(model).network.tasks == 1
    assert model.score(*many(*range(len(model.classes)), seed=9)) > 0.9


def test_what_nothing_but_brightness_tells_apart_is_learned() -> None:
    random = np.random.default_rng(1)

    def greys(*levels: int) -> tuple[Pixels, list[int]]:
        noise = random.integers(-8, 9, (20 * len(levels), 32, 32, 3))
        return (noise + np.repeat(levels, 20)[:, None, None, None]).astype(np.uint8), [*np.repeat(levels, 20).tolist()]

    model = ContinualClassifier("eye", settings={"options.features": 32}, device="cpu")
    for levels in ((40, 160), (100, 220)):
        model.learn(*greys(*levels))
    photos, labels = greys(40, 100, 160, 220)
    assert model.predict(photos).tolist() == labels
