"""The referee: honest temperatures, and what the opinions weigh with them."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gcab.model.referee import EYE, HEADS, SHARES, STATISTICS, Referee, inverse_temperature, membership

ALL = (HEADS, STATISTICS, EYE)
ONE = membership([5])  # task, of all classes


def opinion(count: int, classes: int, skill: float, seed: int) -> tuple[Tensor, Tensor]:
    """Logits that favour the label by so much, and the labels."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    logits = torch.randn(count, classes, generator=random)
    logits[torch.arange(count), labels] += skill
    return logits, labels


def likelihood(logits: Tensor, labels: Tensor, beta: float) -> float:
    """With the one image more, shared among all, whose true class is the strongest wrong one."""
    total = 0.0
    for row, label in zip((beta * logits.double()).tolist(), labels.tolist(), strict=True):
        largest = max(row)
        normaliser = largest + math.log(sum(math.exp(value - largest) for value in row))
        wrong = max(value for index, value in enumerate(row) if index != label)
        total += row[label] - normaliser + (wrong - normaliser) / len(labels)
    return total


@pytest.mark.parametrize("skill", [0.5, 2.0, 6.0])
def test_the_temperature_makes_the_labels_most_likely(skill: float) -> None:
    logits, labels = opinion(60, 5, skill, seed=1)
    beta = inverse_temperature(logits, labels)
    assert beta > 0
    best = likelihood(logits, labels, beta)
    for other in (0.0, 0.5 * beta, 0.99 * beta, 1.01 * beta, 2 * beta):
        assert likelihood(logits, labels, other) < best


def test_an_opinion_on_any_scale_counts_the_same() -> None:
    logits, labels = opinion(60, 5, 2.0, seed=2)
    beta = inverse_temperature(logits, labels)
    for scale in (1e-6, 1e-3, 1e3, 1e6):
        assert inverse_temperature(scale * logits, labels) * scale == pytest.approx(beta, rel=1e-5)
    moved = logits + 1000 * torch.randn(60, 1, generator=torch.Generator().manual_seed(3))
    assert inverse_temperature(moved, labels) == pytest.approx(beta, rel=1e-3), "what all classes share says nothing"


def test_the_decision_does_not_depend_on_the_scale_of_an_opinion() -> None:
    said = {name: opinion(60, 5, 1.5, seed=4 + index)[0] for index, name in enumerate(ALL)}
    labels = torch.arange(60) % 5
    plain, scaled = Referee(ALL), Referee(ALL)
    plain.fit(said, labels, first=0)
    louder = {**said, STATISTICS: 1000 * said[STATISTICS]}
    scaled.fit(louder, labels, first=0)
    assert torch.allclose(scaled(louder, ONE), plain(said, ONE), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 60])
def test_a_faultless_opinion_is_sure_but_not_infinitely(count: int) -> None:
    logits, labels = opinion(count, 5, 50.0, seed=7)
    beta = inverse_temperature(logits, labels)
    assert 0 < beta < math.inf
    sure = (beta * logits.double()).softmax(dim=1)[torch.arange(count), labels]
    assert float(sure.max()) < 1
    assert float(sure.mean()) == pytest.approx(count / (count + 1), abs=0.05), "as if one image more had been missed"


@pytest.mark.parametrize("logits", [torch.zeros(20, 4), torch.full((20, 4), 3.0), -torch.eye(4).repeat(5, 1)])
def test_an_opinion_that_says_nothing_or_the_opposite_does_not_count(logits: Tensor) -> None:
    assert inverse_temperature(logits, torch.arange(20) % 4) == 0.0


def test_useless_opinions_leave_the_decision_to_the_others() -> None:
    good, labels = opinion(60, 5, 2.0, seed=8)
    referee = Referee(ALL)
    said = {HEADS: torch.zeros(60, 5), STATISTICS: -good, EYE: good}
    referee.fit(said, labels, first=0)
    assert referee.weights[:2].tolist() == [0.0, 0.0]
    assert torch.equal(referee(said, ONE).argmax(dim=1), good.argmax(dim=1))


def test_opinions_weigh_their_share_over_their_temperature() -> None:
    said = {name: opinion(40, 4, 1.0 + index, seed=9 + index)[0] for index, name in enumerate(ALL)}
    labels = torch.arange(40) % 4
    referee = Referee(ALL)
    referee.fit(said, labels, first=0)
    expected = [SHARES[name] * inverse_temperature(said[name], labels) for name in ALL]
    assert referee.weights.tolist() == pytest.approx(expected)
    by_hand = sum(weight * said[name] for weight, name in zip(expected, ALL, strict=True))
    assert torch.allclose(referee(said, ONE), torch.as_tensor(by_hand), atol=1e-4)


def test_heads_are_judged_within_the_newest_task_and_the_others_among_all_classes() -> None:
    """A newest head that claims every image looks all-knowing among all heads, and is not."""
    within, labels = opinion(60, 3, 1.0, seed=12)
    older, labels = torch.randn(60, 4, generator=torch.Generator().manual_seed(13)), labels + 4
    claiming = torch.cat([older, within + 100], dim=1)
    referee = Referee(ALL)
    referee.fit(dict.fromkeys(ALL, claiming), labels, first=4)
    heads, statistics, eye = (float(weight) for weight in referee.weights)
    assert heads == pytest.approx(SHARES[HEADS] * inverse_temperature(within, labels - 4), rel=1e-4)
    among_all = inverse_temperature(claiming, labels)
    assert statistics == pytest.approx(SHARES[STATISTICS] * among_all)
    assert eye == pytest.approx(SHARES[EYE] * among_all)


def test_before_anything_is_held_out_the_eye_decides_or_the_heads() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(14))
    said = {HEADS: logits, STATISTICS: -logits, EYE: logits.flip(1)}
    assert torch.equal(Referee(ALL)(said, ONE), said[EYE])
    assert torch.equal(Referee((HEADS, STATISTICS))(said, ONE), said[HEADS])
    assert list(Referee(ALL).state_dict()) == ["weights"]


@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 4, 1), (3, 2, 0, 1)])
def test_heads_count_more_within_a_task_and_tasks_are_told_as_before(sizes: tuple[int, ...]) -> None:
    said = {name: 3 * opinion(50, 6, 1.0, seed=20 + index)[0] for index, name in enumerate(ALL)}
    plain, raised = Referee(ALL), Referee(ALL, within=2.0)
    for referee in (plain, raised):
        referee.weights.copy_(torch.tensor([0.5, 0.25, 1.0]))
    tasks = membership(sizes)
    before, after = plain(said, tasks), raised(said, tasks)
    more_of_heads = before + 2.0 * 0.5 * said[HEADS]
    for own in tasks[tasks.any(dim=1)]:
        share, now = (logits.softmax(dim=1)[:, own].sum(dim=1) for logits in (before, after))
        assert torch.allclose(share, now, atol=1e-5)
        assert torch.allclose(after[:, own].softmax(dim=1), more_of_heads[:, own].softmax(dim=1), atol=1e-5)
    assert not torch.equal(before.argmax(dim=1), after.argmax(dim=1))


def test_without_a_say_the_heads_change_nothing_within_a_task_either() -> None:
    said = {name: opinion(50, 6, 1.0, seed=20 + index)[0] for index, name in enumerate(ALL)}
    assert torch.equal(Referee(ALL, within=2.0)(said, membership([2, 4])), said[EYE])


def test_membership_is_from_the_sizes_of_tasks() -> None:
    assert membership([2, 0, 1]).int().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


def heard(network: float, eye: float, count: int = 200, seed: int = 1) -> tuple[Referee, dict[str, Tensor], Tensor]:
    """A referee to whom network and eye weigh the same, what they say with so much skill, and the labels."""
    referee = Referee(ALL)
    referee.weights.fill_(1.0)
    said = {name: opinion(count, 5, skill, seed + index) for index, (name, skill) in enumerate(
        {HEADS: network, STATISTICS: network, EYE: eye}.items()
    )}  # fmt: skip
    return referee, {name: logits for name, (logits, _) in said.items()}, said[EYE][1]


def right(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(dim=1) == labels).float().mean())


def test_a_network_that_misleads_loses_its_say() -> None:
    referee, opinions, labels = heard(network=-3.0, eye=2.0)
    assert right(referee(opinions, ONE), labels) < right(opinions[EYE], labels)
    assert referee.try_network(opinions, labels, ONE) == 0.0
    assert referee.weights.tolist() == [0.0, 0.0, 1.0]


def test_a_network_that_helps_keeps_it() -> None:
    referee, opinions, labels = heard(network=2.0, eye=1.0)
    say = referee.try_network(opinions, labels, ONE)
    assert say > 0
    assert referee.weights.tolist() == [say, say, 1.0]
    assert right(referee(opinions, ONE), labels) > right(opinions[EYE], labels)


def test_a_network_that_changes_nothing_has_none() -> None:
    referee, opinions, labels = heard(network=0.0, eye=50.0)
    assert referee.try_network(opinions, labels, ONE) == 0.0


def test_on_trial_every_class_counts_the_same() -> None:
    """Many images of one class gain by the network, fewer of four others lose more by it."""
    referee = Referee((HEADS, EYE))
    referee.weights.fill_(1.0)
    labels = torch.tensor([0] * 90 + [1, 2, 3, 4])
    own = torch.nn.functional.one_hot(labels, 5).float()
    eye = torch.where((labels == 0)[:, None], own.roll(1, dims=1), own)  # wrong about class 0 alone
    network = 3 * torch.nn.functional.one_hot(torch.zeros_like(labels), 5).float()  # calls everything class 0
    assert right(referee({HEADS: network, EYE: eye}, ONE), labels) > right(eye, labels)
    assert referee.try_network({HEADS: network, EYE: eye}, labels, ONE) == 0.0


@pytest.mark.parametrize(("fixed", "say"), [(1, 0.0), (8, 0.0), (10, 0.5)])
def test_a_gain_that_chance_would_explain_is_none(fixed: int, say: float) -> None:
    """The network rights so many of the eye's errors and makes none of its own: 3 standard errors are 9 of them."""
    referee = Referee((HEADS, EYE))
    referee.weights.fill_(1.0)
    labels = torch.arange(100) % 5
    own, wrong = torch.nn.functional.one_hot(labels, 5).float(), (torch.arange(100) < fixed)[:, None]
    eye, network = torch.where(wrong, own.roll(1, dims=1), own), 3 * own * wrong
    assert referee.try_network({HEADS: network, EYE: eye}, labels, ONE) == say


def test_where_no_opinion_is_better_than_none_the_eye_answers() -> None:
    labels = torch.arange(40) % 4
    wrong = -functional.one_hot(labels, 4).float()  # each says the class is any but the right one
    referee = Referee((HEADS, STATISTICS, EYE))
    referee.fit({HEADS: wrong, STATISTICS: wrong, EYE: wrong}, labels, first=0)
    assert referee.weights.tolist() == [0.0, 0.0, 1.0]
