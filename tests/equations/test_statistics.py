"""Class statistics: Gaussian classes with one covariance, moved along with the encoder."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from helpers.networks import scramble
from helpers.tasks import IMAGE_SIZE, gcab_options, setting, tasks_of
from torch import Tensor

from gcab.data.tasks import TaskImages
from gcab.methods.gcab import UNCOMPENSATED, Gcab, GcabOptions
from gcab.model.referee import EYE, HEADS, STATISTICS
from gcab.model.statistics import ClassStatistics, Motion, shrunk
from gcab.model.triangle import symmetric

pytestmark = pytest.mark.repeats

SIDE, TOKENS, WIDTH = 4, 16, 3  # a 4 x 4 grid of tokens: four cells
SIZES = (2, 3)


def random_features(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.1, 3, TOKENS * WIDTH).view(TOKENS, WIDTH)
    return torch.randn(count, TOKENS, WIDTH, generator=generator) * scale + 1


def statistics_of(features: Tensor, labels: Tensor, classes: int, pooled: bool = False) -> ClassStatistics:
    statistics = ClassStatistics(SIDE, WIDTH, pooled)
    statistics.grow(classes)
    statistics.fit(statistics.pool(features), labels)
    return statistics


def test_pooling_averages_each_quarter_of_the_image() -> None:
    features = random_features(2, seed=1)
    pooled = ClassStatistics(SIDE, WIDTH).pool(features)
    assert pooled.shape == (2, 4, WIDTH)
    for cell in range(4):
        rows, columns = (2 * (cell // 2), 2 * (cell % 2))
        members = [4 * (rows + y) + columns + x for y in range(2) for x in range(2)]
        expected = sum(features[:, member] for member in members) / 4
        assert torch.allclose(pooled[:, cell], torch.as_tensor(expected), atol=1e-6)


def test_a_wide_image_has_quarters_of_its_own_shape() -> None:
    features = torch.arange(8.0)[None, :, None]  # two rows of four tokens
    assert ClassStatistics((2, 4), 1).pool(features).flatten().tolist() == [0.5, 2.5, 4.5, 6.5]


def test_one_token_is_one_cell() -> None:
    assert torch.equal(ClassStatistics(1, WIDTH).pool(torch.ones(2, 1, WIDTH)), torch.ones(2, 1, WIDTH))


def test_the_score_is_the_log_density_but_for_what_all_classes_share() -> None:
    """Differences between classes equal those of -½ (x - μ)ᵀ Σ⁻¹ (x - μ), computed with loops in float64."""
    features, labels = random_features(40, seed=2), torch.arange(40) % 3
    statistics = statistics_of(features, labels, 3)
    x = statistics.pool(features).flatten(1).double().numpy()
    means = np.stack([x[labels.numpy() == label].mean(axis=0) for label in range(3)])
    spread = np.stack([row - means[label] for row, label in zip(x, labels.tolist(), strict=True)])
    inverse = np.linalg.inv(shrunk(torch.from_numpy(spread.T @ spread / 40), 40).numpy())
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
    assert np.allclose(shrunk(torch.from_numpy(sample), 30).numpy(), expected)
    few, many = (shrunk(torch.from_numpy(sample), count)[0, 1] / sample[0, 1] for count in (5, 30))
    assert few < many, "fewer images: less of the off-diagonal is believed"


def test_features_that_never_vary_give_finite_scores() -> None:
    statistics = statistics_of(torch.ones(8, TOKENS, WIDTH), torch.arange(8) % 2, 2)
    assert bool(statistics(random_features(3, seed=6)).isfinite().all())


def within_class_scatter(x: Tensor, labels: Tensor) -> Tensor:
    """Σ (x - μ_c)(x - μ_c)ᵀ, one image after the other."""
    total = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for label in labels.unique():
        own = x[labels == label].double()
        for row in own:
            total += torch.outer(row - own.mean(dim=0), row - own.mean(dim=0))
    return total


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Relative to the largest number."""
    return float((one.double() - other.double()).abs().max()) <= tolerance * float(other.double().abs().max())


@pytest.mark.parametrize("transported", [False, True])
def test_where_nothing_moves_the_covariance_is_that_of_all_images(transported: bool) -> None:
    features, labels = random_features(90, seed=20), torch.arange(90) % 5
    features += labels[:, None, None]
    statistics, shown = ClassStatistics(SIDE, WIDTH, pooled=True), 0
    for classes in SIZES:
        new = (labels >= shown) & (labels < shown + classes)
        pooled = statistics.pool(features[new])
        statistics.grow(classes)
        if transported:
            statistics.transport(pooled, pooled)
        statistics.fit(pooled, labels[new])
        shown += classes
    expected = within_class_scatter(statistics.pool(features).flatten(1), labels)
    assert int(statistics.images) == 90
    assert close(symmetric(statistics.scatter), expected, 1e-5)
    at_once = statistics_of(features, labels, 5, pooled=True)
    asked = random_features(6, seed=21)
    assert torch.allclose(statistics(asked), at_once(asked), rtol=1e-4, atol=1e-2)


def turned_and_shifted(size: int, seed: int) -> tuple[Tensor, Tensor]:
    """A motion that is neither small nor a rotation, in double precision."""
    random = torch.Generator().manual_seed(seed)
    turn = torch.eye(size, dtype=torch.float64) + 0.3 * torch.randn(size, size, dtype=torch.float64, generator=random)
    return turn, torch.randn(size, dtype=torch.float64, generator=random)


def test_a_motion_is_ridge_regression_drawn_towards_the_identity() -> None:
    """The textbook form: least squares with √r of the identity as further images, r a thousandth of the mean power."""
    x = random_features(50, seed=22).flatten(1)[:, :6].double()
    turn, shift = turned_and_shifted(6, seed=23)
    y = x @ turn + shift + torch.randn(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(24))
    motion = Motion(x, y)
    a, b = x - x.mean(dim=0), y - y.mean(dim=0)
    anchor = (1e-3 * a.square().sum(dim=0).mean()).sqrt() * torch.eye(6, dtype=torch.float64)
    expected = torch.linalg.lstsq(torch.cat([a, anchor]), torch.cat([b, anchor])).solution
    assert close(motion.turn, expected, 1e-9)
    rest = b - a @ expected
    assert close(motion.unexplained, rest.T @ rest / 50, 1e-9)
    assert close(motion(x), y.mean(dim=0) + a @ expected, 1e-9)


def test_where_nothing_moves_a_motion_moves_nothing() -> None:
    x = random_features(40, seed=25).flatten(1)
    still = Motion(x, x)
    assert close(still.turn, torch.eye(TOKENS * WIDTH), 1e-9)
    assert close(still(x.double()), x, 1e-9)


def test_a_linear_motion_carries_means_and_scatter_to_where_the_images_went() -> None:
    """As if the old images were still there to be measured again: seen with new images of the same spread."""
    old, labels = random_features(80, seed=26), torch.arange(80) % 2
    old[labels == 1] += 2
    statistics = statistics_of(old, labels, 2, pooled=True)
    size = statistics.cells * WIDTH
    turn, shift = turned_and_shifted(size, seed=27)
    new = statistics.pool(random_features(400, seed=28)).flatten(1).double()
    before, after = (x.float().view(-1, statistics.cells, WIDTH) for x in (new, new @ turn + shift))
    statistics.transport(before, after)
    moved = statistics.pool(old).flatten(1).double() @ turn + shift
    for label in range(2):
        assert close(statistics.means[label].flatten(), moved[labels == label].mean(dim=0), 0.01)
    assert close(symmetric(statistics.scatter), within_class_scatter(moved, labels), 0.02)


def test_what_a_motion_leaves_unexplained_widens_the_classes() -> None:
    statistics = statistics_of(random_features(80, seed=29), torch.arange(80) % 2, 2, pooled=True)
    before = symmetric(statistics.scatter)
    x = statistics.pool(random_features(400, seed=30))
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(31))
    statistics.transport(x, x + noise)
    added = (symmetric(statistics.scatter) - before).diagonal() / 80
    assert bool(((added > 0.7) & (added < 1.4)).all()), "each image's unexplained variance is about 1"


def awkward(count: int, seed: int) -> Tensor:
    """Pooled features (n, 1, 6) that textbooks warn of: constant, twice the same, and of scales 1e-4 and 1e4."""
    random = torch.Generator().manual_seed(seed)
    plain = torch.randn(count, 6, generator=random)
    plain[:, 1] = 7.0
    plain[:, 3] = plain[:, 2]
    return (plain * torch.tensor([1.0, 1.0, 1.0, 1.0, 1e-4, 1e4]))[:, None]


def test_awkward_features_stay_finite_and_classes_are_found() -> None:
    labels = torch.arange(60) % 2
    first, second = awkward(60, seed=32), awkward(60, seed=33)
    first[labels == 1, 0, 5] += 6e4
    second[:, 0, 5] -= 12e4
    second[labels == 1, 0, 5] -= 6e4
    statistics = ClassStatistics(1, 6, pooled=True)
    statistics.grow(2)
    statistics.fit(first, labels)
    assert torch.equal(statistics(first).argmax(dim=1), labels)
    statistics.grow(2)
    statistics.transport(second, 2 * second + 1)
    statistics.fit(2 * second + 1, 2 + labels)
    for buffer in statistics.buffers():
        assert bool(buffer.isfinite().all())
    spread = torch.linalg.eigvalsh(symmetric(statistics.scatter))
    assert float(spread.min()) > -1e-6 * float(spread.max()), "a scatter is never negative"
    for label in range(2):
        expected = 2 * first[labels == label, 0, 5].mean() + 1
        assert float(statistics.means[label, 0, 5]) == pytest.approx(float(expected), abs=0.01 * 6e4)
        assert float(statistics.means[label, 0, 1]) == pytest.approx(15.0), "what never varies moves as it was seen to"
    assert torch.equal(statistics(2 * first + 1).argmax(dim=1), labels)
    assert torch.equal(statistics(2 * second + 1).argmax(dim=1), 2 + labels)


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
    size = 4 * WIDTH
    assert statistics.nbytes() == 4 * (5 * size * 2 + 5)
    assert ClassStatistics(SIDE, WIDTH, pooled=True).nbytes() == 4 * size * (size + 1) // 2 + 8


EXTENDED = replace(gcab_options("extended"), eye=128)
WEIGHED = replace(EXTENDED, eye=0, referee=False)  # as models before 0.2.0 decide


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
    options = replace(WEIGHED, statistics_weight=0.7, statistics_meet=meet)
    method, images = learned(options)
    with torch.no_grad():
        features = method.features(images)
        heads = method.network.logits(method.network.spaces(features, compensate=True))
        if meet == "probabilities":  # of a class, given its task
            heads = torch.cat([head.log_softmax(dim=1) for head in heads.split(list(SIZES), dim=1)], dim=1)
        expected = 0.7 * method.statistics(features) + heads
        assert torch.allclose(method.predict(images), expected, atol=1e-5)
        assert torch.allclose(method.predictor()(images), expected, atol=1e-4)


def test_the_decision_is_what_the_referee_makes_of_all_opinions() -> None:
    method, images = learned(EXTENDED)
    assert method.referee is not None
    method.referee.weights.copy_(torch.tensor([0.5, 0.25, 2.0]))
    with torch.no_grad():
        features = method.features(images)
        said = {name: decide(images, features) for name, decide in method.parts().items()}
        together = 0.5 * said[HEADS] + 0.25 * said[STATISTICS] + 2.0 * said[EYE]
        again = together + 0.5 * said[HEADS]  # within a task heads count twice
        tasks = zip(together.split(list(SIZES), dim=1), again.split(list(SIZES), dim=1), strict=True)
        by_task = [whole.logsumexp(dim=1, keepdim=True) + more.log_softmax(dim=1) for whole, more in tasks]
        expected = torch.cat(by_task, dim=1)
        assert torch.allclose(method.predict(images), expected, atol=1e-4)
        assert torch.allclose(method.predictor()(images), expected, atol=1e-4)


def test_each_part_of_the_decision_can_be_seen_alone() -> None:
    method, images = learned(EXTENDED)
    assert method.eye is not None
    with torch.no_grad():
        features = method.features(images)
        parts = {name: decide(images, features) for name, decide in method.parts().items()}
        network = method.network
        expected = {
            UNCOMPENSATED: network.logits(network.spaces(features, compensate=False)),
            HEADS: network.logits(network.spaces(features, compensate=True)),
            STATISTICS: method.statistics(features),
            EYE: method.eye(method.setting.pixels(images)),
        }
    assert list(parts) == list(expected)
    assert all(torch.allclose(parts[name], expected[name], atol=1e-4) for name in parts)
    assert not torch.allclose(parts[HEADS], parts[UNCOMPENSATED], atol=1e-2)
    assert set(learned(replace(WEIGHED, statistics=False))[0].parts()) == {UNCOMPENSATED}
    assert learned(replace(WEIGHED, statistics=False, compensation=False))[0].parts() == {}


def test_switched_off_nothing_is_kept_and_the_heads_decide_alone() -> None:
    method, images = learned(replace(WEIGHED, statistics=False, statistics_pooled=False))
    with torch.no_grad():
        expected = method.network.logits(method.network.spaces(method.features(images), compensate=True))
        assert torch.equal(method.predict(images), expected)
    assert method.prototype_bytes() == 0


@pytest.mark.parametrize("drift", ["pfr", "none"])
def test_without_compensation_the_means_stay_where_they_were(drift: Literal["pfr", "none"]) -> None:
    """The teacher moves with the encoder only where compensation asks for it."""
    means = {}
    for compensation in (False, True):
        options = replace(WEIGHED, compensation=compensation, drift=drift)
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


@pytest.mark.parametrize("grid", [(1, 1), (4, 4), (2, 6), (6, 1), (8, 8)])
def test_what_belongs_to_cells_reaches_their_tokens(grid: tuple[int, int]) -> None:
    statistics = ClassStatistics(grid, 5)
    cells = torch.randn(3, statistics.cells, 5, generator=torch.Generator().manual_seed(1))
    spread = statistics.spread(cells)
    assert spread.shape == (3, grid[0] * grid[1], 5)
    assert torch.allclose(statistics.pool(spread), cells)
