"""A-D: only lost attention costs."""

import pytest
import torch
from small_b import batch_of, begin, build, largest_gradient, learn, move, tasks, terms

from gcab.methods.ad import lost_attention, summed

FIRST, SECOND = tasks(2, 2)


def test_gained_attention_is_free_and_lost_attention_is_not() -> None:
    less = torch.tensor([[[0.1, 0.2]]])
    more = torch.tensor([[[0.4, 0.2]]])
    assert float(lost_attention(less, more, symmetric=False)) == 0
    assert float(lost_attention(more, less, symmetric=False)) == pytest.approx(0.3)
    assert float(lost_attention(less, more, symmetric=True)) == pytest.approx(0.3)


def test_the_cost_is_the_mean_over_images_and_blocks_of_a_norm() -> None:
    before, now = torch.rand(5, 3, 7), torch.rand(5, 3, 7)
    expected = (before - now).clamp_min(0).square().sum(dim=2).sqrt().mean()
    torch.testing.assert_close(lost_attention(before, now, symmetric=False), expected)


def test_attention_is_summed_over_rows_and_columns_of_each_head() -> None:
    attention = torch.randn(2, 3, 4, 5)
    found = summed(attention, squared=False)
    assert found.shape == (2, 3 * (4 + 5))
    torch.testing.assert_close(torch.linalg.vector_norm(found, dim=1), torch.ones(2))
    by_head = found.unflatten(1, (3, 9))
    ratio = by_head[0, 1, 0] / attention[0, 1, 0].sum()
    torch.testing.assert_close(by_head[0, 1, :4] / ratio, attention[0, 1].sum(dim=1))
    torch.testing.assert_close(by_head[0, 1, 4:] / ratio, attention[0, 1].sum(dim=0))


@pytest.mark.parametrize("variant", ["functional", "attentional"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_nothing_is_lost_when_a_task_begins(variant: str, symmetric: bool) -> None:
    method = build("ad", variant=variant, symmetric=symmetric)
    learn(method, FIRST)
    begin(method, SECOND)
    batch = batch_of(method, SECOND)
    found = terms(method, batch)["attention"]
    assert float(found.detach()) == pytest.approx(0, abs=1e-6)
    assert largest_gradient(method, found) < 1e-5
    move(method.network)
    moved = terms(method, batch)["attention"]
    assert float(moved.detach()) > 1e-3
    assert largest_gradient(method, moved) > 1e-5


def test_old_heads_stay_and_the_new_one_alone_is_classified() -> None:
    method = build("ad")
    learn(method, FIRST)
    kept = {name: value.clone() for name, value in method.network.head.parts[0].state_dict().items()}
    learn(method, SECOND)
    assert all(torch.equal(value, kept[name]) for name, value in method.network.head.parts[0].state_dict().items())
    assert method.teacher is None
