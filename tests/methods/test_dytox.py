"""DyTox: what rests and what learns, in a task and in the fine-tuning after it."""

from typing import Any

import pytest
import torch
from small_b import SETTING, batch_of, begin, build, end, fit, images_of, learn, snapshot, tasks, terms
from torch.nn import functional

FIRST, SECOND = tasks(2, 3)
TUNED: dict[str, Any] = {"buffer": 10, "tuning_epochs": 3, "tuning_lr": 1e-2, "tuning_batch": 4}


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if name not in after or not torch.equal(before[name], after[name])}


def test_growing_leaves_old_answers_as_they_were() -> None:
    method = build("dytox", **TUNED)
    learn(method, FIRST)
    images = SETTING.normalise(images_of(FIRST).images)
    with torch.no_grad():
        before = method.predict(images)
        begin(method, SECOND)
        torch.testing.assert_close(method.predict(images)[:, :2], before)
    found = terms(method, batch_of(method, SECOND))
    assert float(found["distillation"].detach()) == pytest.approx(0, abs=1e-6)


def test_old_tokens_and_heads_rest_until_the_fine_tuning_and_the_encoder_in_it() -> None:
    method = build("dytox", **TUNED)
    learn(method, FIRST)
    begin(method, SECOND)
    before = snapshot(method.network)
    fit(method, SECOND)
    learned = snapshot(method.network)
    old = {name for name in before if name.startswith(("tokens.0", "heads.0"))}
    assert len(old) == 5
    moved = changed(before, learned)
    assert not moved & old
    assert any(name.startswith("encoder.") for name in moved)
    end(method, SECOND)
    tuned = changed(learned, snapshot(method.network))
    assert old <= tuned
    assert not any(name.startswith("encoder.") for name in tuned)
    assert [parameter.requires_grad for parameter in method.network.heads[0].parameters()] == [False] * 4
    assert method.extra is None
    assert method.teacher is None


def test_the_first_task_is_not_tuned_and_a_preview_never() -> None:
    method = build("dytox", **TUNED)
    begin(method, FIRST)
    fit(method, FIRST)
    before = snapshot(method.network)
    end(method, FIRST)
    assert changed(before, snapshot(method.network)) == {"_extra_state"}
    begin(method, SECOND)
    before = snapshot(method.network)
    method.preview_end(SECOND, images_of(SECOND))
    assert changed(before, snapshot(method.network)) == {"_extra_state"}


def test_the_memory_is_balanced_within_its_budget() -> None:
    method = build("dytox", buffer=9, tuning_epochs=0)
    learn(method, FIRST)
    assert torch.bincount(method.memory.everything().labels).tolist() == [4, 4]
    learn(method, SECOND)
    assert torch.bincount(method.memory.everything().labels).tolist() == [1] * 5
    among = method.among()
    assert among is not None
    assert len(among.labels) == 5


def test_the_terms_are_weighted_by_the_share_of_old_classes() -> None:
    method = build("dytox", buffer=4)
    learn(method, FIRST)
    begin(method, SECOND)
    batch = batch_of(method, SECOND)
    found = terms(method, batch)
    logits = method.network(batch.images)
    plain = functional.binary_cross_entropy_with_logits(logits, functional.one_hot(batch.labels, 5).float())
    torch.testing.assert_close(found["classification"], 3 / 5 * plain)
    with torch.no_grad():
        for weight in method.network.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    p, q = batch.targets["logits"].softmax(dim=1), method.network(batch.images)[:, :2].softmax(dim=1)
    expected = 2 / 5 * (p * (p / q).log()).mean()  # over images and classes
    torch.testing.assert_close(terms(method, batch)["distillation"], expected)


def test_the_extra_head_tells_old_classes_from_each_new_one() -> None:
    method = build("dytox", buffer=4)
    learn(method, FIRST)
    begin(method, SECOND)
    assert method.extra.linear.out_features == 4
    old, new = images_of(FIRST, 2), images_of(SECOND, 3)
    images, labels = SETTING.normalise(torch.cat([old.images, new.images])), torch.cat([old.labels, new.labels])
    with torch.no_grad():
        method.extra.linear.bias.copy_(torch.tensor([5.0, -5.0, -5.0, -5.0]))
    batch = method.batch(type(batch_of(method, SECOND))(images, labels))
    found = float(terms(method, batch)["divergence"].detach())
    targets = functional.one_hot(torch.tensor([0, 0, 1, 2, 3]), 4).float()
    logits = torch.tensor([5.0, -5.0, -5.0, -5.0]).expand(5, 4)
    assert found == pytest.approx(0.1 * float(functional.binary_cross_entropy_with_logits(logits, targets)))


def test_the_predictor_says_the_same() -> None:
    method = build("dytox", buffer=4)
    learn(method, FIRST)
    learn(method, SECOND)
    images = SETTING.normalise(images_of(SECOND).images)
    torch.testing.assert_close(method.predictor()(images), method.predict(images))
    readable = method.network.logits([method.features(images)] * 2)
    torch.testing.assert_close(method.predict(images), readable)
