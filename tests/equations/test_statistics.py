"""Class statistics: Gaussian classes with one covariance, moved along with the encoder."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from networks import IMAGE_SIZE, profile_options, scramble, setting, tasks_of
from torch import Tensor

from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.method import TaskImages
from gcab.model.statistics import ClassStatistics, linear_motion, shrunk_covariance

TOKENS, WIDTH = 16, 3  # a 4 x 4 grid of tokens: four cells
SIZES = (2, 3)


def random_features(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.1, 3, TOKENS * WIDTH).view(TOKENS, WIDTH)
    return torch.randn(count, TOKENS, WIDTH, generator=generator) * scale + 1


def statistics_of(features: Tensor, labels: Tensor, classes: int) -> ClassStatistics:
    statistics = ClassStatistics(TOKENS, WIDTH)
    statistics.grow(classes)
    statistics.fit(statistics.pool(features), labels)
    return statistics


def test_pooling_averages_each_quarter_of_the_image() -> None:
    features = random_features(2, seed=1)
    pooled = ClassStatistics(TOKENS, WIDTH).pool(features)
    assert pooled.shape == (2, 4, WIDTH)
    for cell in range(4):
        rows, columns = (2 * (cell // 2), 2 * (cell % 2))
        members = [4 * (rows + y) + columns + x for y in range(2) for x in range(2)]
        expected = sum(features[:, member] for member in members) / 4
        assert torch.allclose(pooled[:, cell], torch.as_tensor(expected), atol=1e-6)


def test_one_token_is_one_cell() -> None:
    assert torch.equal(ClassStatistics(1, WIDTH).pool(torch.ones(2, 1, WIDTH)), torch.ones(2, 1, WIDTH))


def test_the_score_is_the_log_density_but_for_what_all_classes_share() -> None:
    """Differences between classes equal those of -½ (x - μ)ᵀ Σ⁻¹ (x - μ), computed with loops in float64."""
    features, labels = random_features(40, seed=2), torch.arange(40) % 3
    statistics = statistics_of(features, labels, 3)
    x = statistics.pool(features).flatten(1).double().numpy()
    means = np.stack([x[labels.numpy() == label].mean(axis=0) for label in range(3)])
    spread = np.stack([row - means[label] for row, label in zip(x, labels.tolist(), strict=True)])
    inverse = np.linalg.inv(shrunk_covariance(torch.from_numpy(spread)).numpy())
    asked = random_features(5, seed=3)
    scores = statistics(asked).double().numpy()
    for row, image in enumerate(statistics.pool(asked).flatten(1).double().numpy()):
        density = [-0.5 * float((image - mean) @ inverse @ (image - mean)) for mean in means]
        for label in (1, 2):
            assert scores[row, label] - scores[row, 0] == pytest.approx(density[label] - density[0], rel=1e-3, abs=1e-2)


def test_a_class_far_from_the_others_is_recognised() -> None:
    features, labels = random_features(40, seed=4), torch.arange(40) % 2
    features[labels == 1] += 3
    statistics = statistics_of(features, labels, 2)
    assert torch.equal(statistics(features).argmax(dim=1), labels)


def test_shrinkage_is_the_published_formula_and_grows_with_fewer_images() -> None:
    spread = torch.randn(30, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    spread = spread * torch.linspace(0.5, 2, 6)
    sample = (spread.T @ spread / 30).numpy()
    p, n, trace, squares = 6, 30, np.trace(sample), (sample**2).sum()
    share = ((1 - 2 / p) * squares + trace**2) / ((n + 1 - 2 / p) * (squares - trace**2 / p))
    expected = (1 - share) * sample + (share * trace / p + 1e-9) * np.eye(p)
    assert 0 < share < 1
    assert np.allclose(shrunk_covariance(spread).numpy(), expected)
    few, many = (
        shrunk_covariance(spread[:count])[0, 1] / (spread[:count].T @ spread[:count] / count)[0, 1] for count in (5, 30)
    )
    assert few < many, "fewer images: less of the off-diagonal is believed"


def test_features_that_never_vary_give_finite_scores() -> None:
    statistics = statistics_of(torch.ones(8, TOKENS, WIDTH), torch.arange(8) % 2, 2)
    assert bool(statistics(random_features(3, seed=6)).isfinite().all())


def test_motion_finds_a_linear_map_and_nothing_where_nothing_moved() -> None:
    before = random_features(200, seed=7).flatten(0, 1)
    turn = torch.tensor([[0.0, 1.0, 0.2], [-1.0, 0.5, 0.0], [0.3, 0.0, 2.0]])
    motion = linear_motion(before, before @ turn + 3)
    assert torch.allclose(motion[:-1].float(), turn, atol=0.1)
    still = linear_motion(before, before)
    assert torch.allclose(still[:-1], torch.eye(3, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(still[-1], torch.zeros(3, dtype=torch.float64), atol=1e-6)


def test_means_travel_with_the_encoder() -> None:
    """After features are turned and shifted, the old classes are found where they went, without an old image."""
    old, labels = random_features(60, seed=8), torch.arange(60) % 2
    old[labels == 1] += 2
    statistics = statistics_of(old, labels, 2)

    def moved(features: Tensor) -> Tensor:
        return features @ torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.5]]) - 4

    new, new_labels = random_features(60, seed=9) - 2, 2 + torch.arange(60) % 2
    new[new_labels == 3] -= 2
    statistics.grow(2)
    stale = statistics.means[:2].clone()
    statistics.transport(statistics.pool(new), statistics.pool(moved(new)))
    statistics.fit(statistics.pool(moved(new)), new_labels)
    expected = statistics.pool(moved(old))
    for label in range(2):
        target = expected[labels == label].mean(dim=0)
        assert (statistics.means[label] - target).norm() < 0.2 * (stale[label] - target).norm()
    assert float((statistics(moved(old)).argmax(dim=1) == labels).double().mean()) > 0.9


def test_growing_keeps_what_is_known() -> None:
    statistics = statistics_of(random_features(12, seed=10), torch.arange(12) % 2, 2)
    asked = random_features(4, seed=11)
    before = statistics(asked)
    statistics.grow(3)
    assert statistics(asked).shape == (4, 5)
    assert torch.allclose(statistics(asked)[:, :2], before, rtol=1e-5)
    assert statistics.nbytes() == 4 * (5 * 4 * WIDTH * 2 + 5)


def learned(options: GcabOptions) -> tuple[Gcab, Tensor]:
    """Two tasks of the small network, ended but hardly trained, and some normalised images."""
    method = Gcab(setting(), options)
    random = torch.Generator().manual_seed(12)
    for task in tasks_of(*SIZES):
        method.grow(task)
        method.begin_task(task)
        scramble(method, seed=13 + task.index)
        images = torch.randint(0, 256, (12, 3, IMAGE_SIZE, IMAGE_SIZE), dtype=torch.uint8, generator=random)
        method.eval().end_task(task, TaskImages(images, task.first + torch.arange(12) % task.classes))
    return method, torch.randn(6, 3, IMAGE_SIZE, IMAGE_SIZE, generator=random)


@pytest.mark.parametrize("meet", ["logits", "probabilities"])
def test_the_decision_adds_weighted_statistics_to_what_the_heads_say(meet: Literal["logits", "probabilities"]) -> None:
    options = replace(profile_options("extended"), statistics_weight=0.7, statistics_meet=meet)
    method, images = learned(options)
    with torch.no_grad():
        features = method.features(images)
        heads = method.network.logits(method.network.spaces(features, compensate=True))
        if meet == "probabilities":  # of a class, given its task
            heads = torch.cat([head.log_softmax(dim=1) for head in heads.split(list(SIZES), dim=1)], dim=1)
        expected = 0.7 * method.statistics(features) + heads
        assert torch.allclose(method.predict(images), expected, atol=1e-5)
        assert torch.allclose(method.predictor()(images), expected, atol=1e-4)


def test_each_part_of_the_decision_can_be_seen_alone() -> None:
    method, images = learned(profile_options("extended"))
    with torch.no_grad():
        features = method.features(images)
        views = {name: decide(features) for name, decide in method.views().items()}
        network = method.network
        expected = {
            "heads, not compensated": network.logits(network.spaces(features, compensate=False)),
            "heads": network.logits(network.spaces(features, compensate=True)),
            "statistics": method.statistics(features),
        }
    assert list(views) == list(expected)
    assert all(torch.allclose(views[name], expected[name], atol=1e-4) for name in views)
    assert not torch.allclose(views["heads"], views["heads, not compensated"], atol=1e-2)
    assert set(learned(replace(profile_options("extended"), statistics=False))[0].views()) == {"heads, not compensated"}
    assert learned(replace(profile_options("extended"), statistics=False, compensation=False))[0].views() == {}


def test_switched_off_nothing_is_kept_and_the_heads_decide_alone() -> None:
    method, images = learned(replace(profile_options("extended"), statistics=False))
    with torch.no_grad():
        expected = method.network.logits(method.network.spaces(method.features(images), compensate=True))
        assert torch.equal(method.predict(images), expected)
    assert method.prototype_bytes() == 0


@pytest.mark.parametrize("drift", ["pfr", "none"])
def test_without_compensation_the_means_stay_where_they_were(drift: Literal["pfr", "none"]) -> None:
    """The teacher moves with the encoder only where compensation asks for it."""
    means = {}
    for compensation in (False, True):
        options = replace(profile_options("extended"), compensation=compensation, drift=drift)
        torch.manual_seed(14)
        method = Gcab(setting(), options)
        first, second = tasks_of(*SIZES)
        images = torch.randint(0, 256, (12, 3, IMAGE_SIZE, IMAGE_SIZE), dtype=torch.uint8)
        method.grow(first)
        method.eval().end_task(first, TaskImages(images, torch.arange(12) % 2))
        before = method.statistics.means[:2].clone()
        method.grow(second)
        method.begin_task(second)
        with torch.no_grad():
            method.network.encoder.position.add_(torch.randn_like(method.network.encoder.position))
        method.eval().end_task(second, TaskImages(images, 2 + torch.arange(12) % 3))
        means[compensation] = (before, method.statistics.means[:2])
    assert torch.equal(*means[False])
    assert not torch.allclose(*means[True], atol=1e-3)
