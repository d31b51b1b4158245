"""Class statistics and how they choose the task: log P(task) + log P(class | task)."""

from dataclasses import replace

import naive
import pytest
import torch
from naive import Matrix
from networks import IMAGE_SIZE, grown, profile_options, setting, soften, tasks_of
from torch import Tensor

from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.method import TaskImages
from gcab.model.statistics import ClassStatistics, TaskStatistics

TOKENS, WIDTH = 3, 4
SIZES = (2, 3)


def random_features(count: int, seed: int, tokens: int = TOKENS, width: int = WIDTH) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.1, 3, tokens * width).view(tokens, width)
    return torch.randn(count, tokens, width, generator=generator) * scale + 1


def flat(features: Tensor) -> Matrix:
    return naive.table(features.flatten(1))


def fitted(seed: int, classes: int = 2) -> tuple[TaskStatistics, Matrix, naive.Vector]:
    """Statistics of twelve images, and the same by loops."""
    features, labels = random_features(12, seed), torch.arange(12) % classes
    statistics = TaskStatistics(classes, TOKENS, WIDTH)
    statistics.fit(features, labels)
    means = naive.class_means(flat(features), labels.tolist(), classes)
    return statistics, means, naive.shared_variance(flat(features), labels.tolist(), means)


def test_means_are_per_class_and_the_variance_is_shared() -> None:
    statistics, means, variance = fitted(seed=1, classes=3)
    for label in range(3):
        assert naive.numbers(statistics.means[label]) == pytest.approx(means[label], rel=1e-5, abs=1e-6)
    assert naive.numbers(statistics.variance) == pytest.approx(variance, rel=1e-5)


def test_the_distance_is_to_the_nearest_mean_in_standard_deviations() -> None:
    statistics, means, variance = fitted(seed=2)
    asked = random_features(5, seed=3)
    expected = [naive.distance_to_nearest(row, means, variance) for row in flat(asked)]
    assert naive.numbers(statistics(asked)) == pytest.approx(expected, rel=1e-4)
    at_means = statistics.means.view(2, TOKENS, WIDTH)
    assert naive.numbers(statistics(at_means)) == pytest.approx([0, 0], abs=1e-5)


def test_the_distance_does_not_depend_on_the_size_of_the_batch() -> None:
    """Large batches go through a matrix product, which must not cost the digits that choose the task."""
    statistics = TaskStatistics(2, 16, 64)
    features = random_features(64, seed=4, tokens=16, width=64) + 5
    statistics.fit(features[:12], torch.arange(12) % 2)
    exact = statistics.double()
    assert naive.numbers(statistics.float()(features)) == pytest.approx(naive.numbers(exact(features)), rel=1e-3)
    alone = torch.cat([statistics(one[None]) for one in features])
    assert naive.numbers(statistics(features)) == pytest.approx(naive.numbers(alone), rel=1e-3)


def test_a_feature_that_never_varies_gives_finite_distances() -> None:
    features = random_features(8, seed=5)
    features[:, 0, 0] = 2.0
    statistics = TaskStatistics(2, TOKENS, WIDTH)
    statistics.fit(features, torch.arange(8) % 2)
    assert bool((statistics.variance > 0).all())
    statistics.fit(torch.ones(8, TOKENS, WIDTH), torch.arange(8) % 2)
    assert bool(statistics(features).isfinite().all())


def test_the_log_probability_of_a_task_is_a_softmax_over_distances() -> None:
    statistics = ClassStatistics(TOKENS, WIDTH)
    spaces = [random_features(4, seed=6), random_features(4, seed=7)]
    references = []
    for index, classes in enumerate(SIZES):
        statistics.grow(classes)
        features, labels = random_features(12, seed=8 + index), torch.arange(12) % classes
        statistics.fit_newest(features, labels)
        means = naive.class_means(flat(features), labels.tolist(), classes)
        references.append((means, naive.shared_variance(flat(features), labels.tolist(), means)))
    weight = 3.0
    result = statistics.log_probability(spaces, weight)
    assert result.shape == (2, 4)
    for image in range(4):
        distances = [
            naive.distance_to_nearest(flat(space)[image], *reference)
            for space, reference in zip(spaces, references, strict=True)
        ]
        expected = naive.log_softmax([-0.5 * weight * distance for distance in distances])
        assert naive.numbers(result[:, image]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert statistics.nbytes() == 4 * TOKENS * WIDTH * (sum(SIZES) + len(SIZES))


def bytes_of(task: int, count: int = 9) -> TaskImages:
    generator = torch.Generator().manual_seed(40 + task)
    images = torch.randint(256, (count, 3, IMAGE_SIZE, IMAGE_SIZE), generator=generator, dtype=torch.uint8)
    first = sum(SIZES[:task])
    return TaskImages(images, first + torch.arange(count) % SIZES[task])


def ended(options: GcabOptions) -> Gcab:
    """Two tasks grown and the second ended, with networks that are soft and scrambled."""
    method = grown(options, *SIZES).eval().float()
    method.end_task(tasks_of(*SIZES)[1], bytes_of(1))
    if options.statistics:  # of the first task, as the cascade shows its images now
        features = method.features(setting().normalise(bytes_of(0).images))
        first = method.statistics.tasks[0]
        assert isinstance(first, TaskStatistics)
        first.fit(method.network.spaces(features, options.compensation)[0], bytes_of(0).labels)
    return method.double()


def test_a_task_leaves_the_statistics_of_its_own_features() -> None:
    method = ended(soften(profile_options("extended")))
    data = bytes_of(1)
    features = [
        [value for token in naive.encode(method.network.encoder, image.double()) for value in token]
        for image in setting().normalise(data.images)
    ]
    labels = (data.labels - SIZES[0]).tolist()
    means = naive.class_means(features, labels, SIZES[1])
    newest = method.statistics.tasks[1]
    for label in range(SIZES[1]):
        assert naive.numbers(newest.get_buffer("means")[label]) == pytest.approx(means[label], rel=1e-3, abs=1e-4)
    expected = naive.shared_variance(features, labels, means)
    assert naive.numbers(newest.get_buffer("variance")) == pytest.approx(expected, rel=1e-3)
    assert method.prototype_bytes() == method.statistics.nbytes() > 0


@pytest.mark.parametrize("compensation", [True, False])
def test_the_prediction_adds_the_log_probabilities_of_task_and_class(compensation: bool) -> None:
    options = replace(soften(profile_options("extended")), compensation=compensation, statistics_weight=2.0)
    method = ended(options)
    images = setting().normalise(bytes_of(0, count=4).images).double()
    with torch.no_grad():
        predicted = method.predict(images)
        spaces = method.network.spaces(method.features(images), compensation)
        heads = method.network.logits(spaces).split(SIZES, dim=1)
    tasks = [task for task in method.statistics.tasks if isinstance(task, TaskStatistics)]
    for image in range(4):
        distances = [
            naive.distance_to_nearest(flat(space)[image], naive.table(task.means), naive.numbers(task.variance))
            for space, task in zip(spaces, tasks, strict=True)
        ]
        log_tasks = naive.log_softmax([-distance for distance in distances])  # 0.5 * 2.0
        expected = [
            log_task + log_class
            for log_task, head in zip(log_tasks, heads, strict=True)
            for log_class in naive.log_softmax(naive.numbers(head[image]))
        ]
        assert naive.numbers(predicted[image]) == pytest.approx(expected, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("profile", ["extended", "official", "paper"])
def test_statistics_change_no_decision_within_a_task(profile: str) -> None:
    with_statistics, without = (ended(replace(soften(profile_options(profile)), statistics=on)) for on in (True, False))
    images = setting().normalise(torch.cat([bytes_of(0).images, bytes_of(1).images])).double()
    with torch.no_grad():
        ours, theirs = with_statistics.predict(images), without.predict(images)
    for mine, plain in zip(ours.split(SIZES, dim=1), theirs.split(SIZES, dim=1), strict=True):
        assert torch.equal(mine.argmax(dim=1), plain.argmax(dim=1))
    first = SIZES[0]
    chosen, plainly = ours.argmax(dim=1) < first, theirs.argmax(dim=1) < first
    assert not torch.equal(chosen, plainly), "the statistics had no say at all"


def test_methods_without_statistics_store_none() -> None:
    method = ended(profile_options("official"))
    assert method.prototype_bytes() == 0
    assert not any(name.startswith("statistics") for name in method.state_dict())
