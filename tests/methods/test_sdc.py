"""Semantic drift compensation: where prototypes go when features move."""

import pytest
import torch
from small_b import batch_of, begin, build, end, fit, largest_gradient, learn, move, tasks, terms

from gcab.methods.sdc import UNCOMPENSATED, compensated, triplet_loss

GENERATOR = torch.Generator().manual_seed(1)
PROTOTYPES = torch.randn(3, 4, generator=GENERATOR)
BEFORE = torch.randn(20, 4, generator=GENERATOR)


@pytest.mark.parametrize("sigma", [0.01, 0.3, 100.0])
def test_a_common_shift_moves_every_prototype_by_it(sigma: float) -> None:
    shift = torch.tensor([1.0, -2.0, 0.5, 0.0])
    torch.testing.assert_close(compensated(PROTOTYPES, BEFORE, BEFORE + shift, sigma), PROTOTYPES + shift)


def test_nothing_moves_without_drift() -> None:
    assert torch.equal(compensated(PROTOTYPES, BEFORE, BEFORE, 0.2), PROTOTYPES)


def test_a_wide_sigma_takes_the_mean_drift_and_a_narrow_one_the_nearest() -> None:
    drift = torch.randn(20, 4, generator=torch.Generator().manual_seed(2))
    wide = compensated(PROTOTYPES, BEFORE, BEFORE + drift, 1e4)
    torch.testing.assert_close(wide, PROTOTYPES + drift.mean(dim=0), rtol=1e-4, atol=1e-4)
    nearest = torch.cdist(PROTOTYPES, BEFORE).argmin(dim=1)
    narrow = compensated(PROTOTYPES, BEFORE, BEFORE + drift, 1e-2)
    torch.testing.assert_close(narrow, PROTOTYPES + drift[nearest])


def test_a_far_prototype_stays_finite() -> None:
    far = torch.full((1, 4), 1e3)
    assert bool(compensated(far, BEFORE, BEFORE + 1, 0.2).isfinite().all())


def test_prototypes_are_class_means_of_unit_features_and_old_ones_follow() -> None:
    method = build("sdc")
    first, second = tasks(2, 3)
    learn(method, first)
    kept = method.prototypes.clone()
    assert torch.equal(method.original, kept)
    assert bool((torch.linalg.vector_norm(kept, dim=1) <= 1 + 1e-6).all())
    begin(method, second)
    fit(method, second)
    end(method, second)
    assert torch.equal(method.original[:2], kept)
    assert not torch.equal(method.prototypes[:2], kept)
    assert torch.equal(method.prototypes[2:], method.original[2:])
    assert method.prototype_bytes() == 2 * 5 * 16 * 4
    images = batch_of(method, second).images
    without = method.parts()[UNCOMPENSATED](images, method.features(images))
    assert torch.equal(without[:, 2:], method.predict(images)[:, 2:])
    assert not torch.equal(without[:, :2], method.predict(images)[:, :2])


def test_the_view_can_be_saved() -> None:
    method = build("sdc", uncompensated=False)
    learn(method, tasks(2)[0])
    assert method.parts() == {}
    assert method.prototype_bytes() == 2 * 16 * 4


@pytest.mark.parametrize(("embedding", "term"), [("classifier", "distillation"), ("triplet", "drift")])
def test_the_regulariser_starts_at_zero_without_a_gradient(embedding: str, term: str) -> None:
    method = build("sdc", embedding=embedding)
    first, second = tasks(2, 2)
    learn(method, first)
    begin(method, second)
    value = terms(method, batch_of(method, second))[term]
    assert float(value.detach()) == pytest.approx(0, abs=1e-6)
    assert largest_gradient(method, value) < 1e-4
    move(method.network)
    assert float(terms(method, batch_of(method, second))[term].detach()) > 1e-4


def test_triplets_cost_nothing_where_classes_lie_apart() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2])
    apart = torch.nn.functional.one_hot(labels, 3).float()
    assert float(triplet_loss(apart, labels, margin=0.0)) == 0
    assert float(triplet_loss(apart, labels, margin=2.0)) == pytest.approx(2 - 2**0.5, abs=1e-4)
    together = torch.tensor([[1.0, 0], [0, 1.0], [1.0, 0], [0, 1.0]])
    assert float(triplet_loss(together, torch.tensor([0, 0, 1, 1]), margin=0.0)) > 0.5
    assert float(triplet_loss(apart[:1], labels[:1], margin=1.0)) == 0
