"""Eq. loss_prj and Eq. projection."""

import math
from typing import get_args

import pytest
import torch
from helpers import naive
from helpers.networks import scramble
from torch import Tensor, nn

from gcab.model.projectors import (
    Distance,
    DriftCascade,
    ProjectorKind,
    drift_distance,
    make_projector,
    relative_drift,
)

TOKENS, WIDTH = 4, 6


def cascade_of(kind: ProjectorKind, projectors: int) -> DriftCascade:
    cascade = DriftCascade()
    for _ in range(projectors):
        cascade.grow(make_projector(kind, TOKENS, WIDTH))
    scramble(cascade, seed=12)
    return cascade.double()


def random_features(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, TOKENS, WIDTH, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kind", get_args(ProjectorKind))
def test_the_cascade_is_the_composition_of_projectors(kind: ProjectorKind) -> None:
    cascade = cascade_of(kind, 3)  # p^2, p^3, p^4: four tasks
    p2, p3, p4 = cascade.projectors
    b4 = random_features(13)
    spaces = cascade(b4)
    assert len(spaces) == 4
    for image in range(2):
        newest = naive.table(b4[image])
        compositions = [
            naive.project(p2, naive.project(p3, naive.project(p4, newest))),
            naive.project(p3, naive.project(p4, newest)),
            naive.project(p4, newest),
            newest,
        ]
        for space, expected in zip(spaces, compositions, strict=True):
            for token in range(TOKENS):
                assert naive.numbers(space[image, token]) == pytest.approx(expected[token], rel=1e-8, abs=1e-12)


def test_a_residual_projector_starts_as_the_identity_and_can_leave_it() -> None:
    projector = make_projector("residual", TOKENS, WIDTH).double()
    features = random_features(21)
    assert torch.equal(projector(features), features)
    drift_distance("rms", projector(features), features + 1).backward()
    gradients = [parameter.grad for parameter in projector.parameters() if parameter.grad is not None]
    assert any(bool(gradient.any()) for gradient in gradients)


def test_each_projector_runs_once() -> None:
    cascade = cascade_of("mlp", 9)
    calls: list[int] = []

    def count(module: nn.Module, _inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        calls.append(id(module))

    for projector in cascade.projectors:
        projector.register_forward_hook(count)
    assert len(cascade(random_features(14))) == 10
    assert calls == [id(projector) for projector in reversed(cascade.projectors)]


def test_an_empty_cascade_is_the_identity() -> None:
    features = random_features(15)
    spaces = DriftCascade()(features)
    assert len(spaces) == 1
    assert spaces[0] is features


def test_growing_freezes_the_older_projectors() -> None:
    cascade = cascade_of("normed", 3)
    learning = [all(p.requires_grad for p in projector.parameters()) for projector in cascade.projectors]
    assert learning == [False, False, True]
    assert cascade.newest is cascade.projectors[2]


def test_cosine_distance_is_a_mean_over_tokens() -> None:
    a, b = random_features(16), random_features(17)
    tokens = [
        naive.cosine_distance(naive.numbers(a[i, n]), naive.numbers(b[i, n])) for i in range(2) for n in range(TOKENS)
    ]
    assert float(drift_distance("cosine", a, b)) == pytest.approx(sum(tokens) / len(tokens), rel=1e-5)
    assert float(drift_distance("cosine", a, 3 * a)) == pytest.approx(0, abs=1e-6)
    assert float(drift_distance("cosine", a, -a)) == pytest.approx(2)


def test_l2_distance_is_one_norm_over_the_whole_batch() -> None:
    a, b = random_features(18), random_features(19)
    squares = [(x - y) ** 2 for x, y in zip(naive.numbers(a), naive.numbers(b), strict=True)]
    assert float(drift_distance("l2", a, b)) == pytest.approx(math.sqrt(sum(squares)), rel=1e-5)


def test_rms_distance_is_the_norm_per_element() -> None:
    a, b = random_features(18), random_features(19)
    squares = [(x - y) ** 2 for x, y in zip(naive.numbers(a), naive.numbers(b), strict=True)]
    expected = math.sqrt(sum(squares) / len(squares))
    assert float(drift_distance("rms", a, b)) == pytest.approx(expected, rel=1e-5)
    twice = drift_distance("rms", torch.cat([a, a]), torch.cat([b, b]))
    assert float(twice) == pytest.approx(expected, rel=1e-5), "a larger batch must not weigh more"


@pytest.mark.parametrize("kind", get_args(Distance))
def test_distances_have_finite_gradients_where_nothing_has_drifted(kind: Distance) -> None:
    """A new task's first step compares the encoder with a copy of itself."""
    features = random_features(20).requires_grad_()
    drift_distance(kind, features, features.detach()).backward()
    assert features.grad is not None
    assert bool(features.grad.isfinite().all())


def test_relative_drift_by_hand() -> None:
    reference = torch.tensor([[[3.0, 4.0]], [[0.0, 2.0]]])  # norms 5 and 2
    features = torch.tensor([[[3.0, 5.0]], [[0.0, 2.0]]])  # moved by 1 and 0
    assert relative_drift(features, reference) == pytest.approx((1 / 5 + 0) / 2)
