"""LVT: held keys, confident exemplars, and the classifier that decides."""

from typing import Any

import pytest
import torch
from small_b import SETTING, batch_of, begin, build, end, fit, images_of, largest_gradient, learn, move, tasks, terms

from gcab.config import resolve
from gcab.data.tasks import Batch
from gcab.errors import GcabError
from gcab.methods.lvt import INJECTION

FIRST, SECOND, THIRD = tasks(2, 3, 2)


def lvt(**options: Any) -> Any:
    return build("lvt", {"kind": "external"}, **{"buffer": 10, **options})


def with_replay(method: Any, count: int = 6) -> Batch:
    fresh, drawn = images_of(SECOND, count), method.replay(count)
    images, labels = torch.cat([fresh.images, drawn.images]), torch.cat([fresh.labels, drawn.labels])
    return Batch(SETTING.normalise(images), labels, count, drawn.slots)


def test_it_asks_for_learned_keys_and_its_profiles_have_them() -> None:
    with pytest.raises(GcabError, match="lvt has learned keys"):
        build("lvt")
    for profile in ("extended", "official", "paper"):
        assert resolve("digits/5", "lvt", profile).encoder.kind == "external"


def test_keys_cost_nothing_when_a_task_begins_and_something_once_they_moved() -> None:
    method = lvt(keys=1.0)
    learn(method, FIRST)
    assert bool((method.importance >= 0).all())
    assert bool(method.importance.any())
    begin(method, SECOND)
    found = terms(method, with_replay(method))["keys"]
    assert float(found.detach()) == 0
    assert largest_gradient(method, found) == 0
    move(method.network.encoder)
    moved = terms(method, with_replay(method))["keys"]
    expected = sum(
        float((weight * (now - before).abs()).sum())
        for weight, now, before in [(method.importance, method.flat_keys().detach(), method.old_keys)]
    )
    assert float(moved.detach()) == pytest.approx(expected, rel=1e-5)
    assert expected > 0


def test_the_terms_have_the_weights_of_the_options_and_fresh_labels_count_less_with_every_task() -> None:
    method = lvt(rehearsal=0.3, distillation=0.7, fading=0.5)
    learn(method, FIRST)
    learn(method, SECOND)
    begin(method, THIRD)
    move(method.network)  # so that no term is 0
    fresh, drawn = images_of(THIRD, 6), method.replay(6)
    images, labels = torch.cat([fresh.images, drawn.images]), torch.cat([fresh.labels, drawn.labels])
    feature = method.network.feature(SETTING.normalise(images))
    logits, cross_entropy = method.network.head(feature), torch.nn.functional.cross_entropy
    found = terms(method, Batch(SETTING.normalise(images), labels, 6, drawn.slots))
    expected = {
        "classification": 0.5**2 * cross_entropy(logits[:6], fresh.labels),
        "injection": cross_entropy(method.injection.parts[-1](feature[:6]), fresh.labels - THIRD.first),
        "rehearsal": 0.3 * cross_entropy(logits[6:], drawn.labels),
        "distillation": 0.7 * method.forgotten(logits[6:], drawn.slots),
    }
    assert found.keys() == {*expected, "keys"}
    for name, value in expected.items():
        assert float(value.detach()) > 0
        torch.testing.assert_close(found[name], value)


def test_importance_is_the_mean_gradient_of_the_injection_loss_in_any_parts() -> None:
    method = lvt()
    begin(method, FIRST)
    fit(method, FIRST)
    data = images_of(FIRST)
    logits = method.injection(method.network.feature(SETTING.normalise(data.images)))
    loss = torch.nn.functional.cross_entropy(logits, data.labels)
    expected = torch.cat([part.flatten() for part in torch.autograd.grad(loss, method.keys())])
    torch.testing.assert_close(method.mean_gradient(data), expected, rtol=1e-4, atol=1e-7)
    end(method, FIRST)
    torch.testing.assert_close(method.importance, expected.abs(), rtol=1e-4, atol=1e-7)
    assert method.old_keys is None


def test_the_surest_images_come_first_and_old_classes_keep_a_prefix() -> None:
    method = lvt()
    learn(method, FIRST)
    before = method.memory.everything()
    assert torch.bincount(before.labels).tolist() == [5, 5]
    with torch.no_grad():
        told = method.injection(method.network.feature(SETTING.normalise(before.images))).softmax(dim=1)
    sureness = told.gather(1, before.labels[:, None]).squeeze(1)
    for label in range(2):
        own = sureness[before.labels == label]
        assert bool((own[1:] <= own[:-1] + 1e-6).all())
    learn(method, SECOND)
    after = method.memory.everything()
    assert torch.bincount(after.labels).tolist() == [2] * 5
    for label in range(2):
        assert torch.equal(after.images[after.labels == label], before.images[before.labels == label][:2])


def test_stored_logits_are_those_of_the_end_of_the_task_and_stay() -> None:
    method = lvt()
    learn(method, FIRST)
    held = method.memory.everything()
    with torch.no_grad():
        expected = method.predict(SETTING.normalise(held.images))
    torch.testing.assert_close(method.memory.logits[:10], expected)
    stored = method.memory.logits[:10].clone()
    begin(method, SECOND)
    batch = with_replay(method)
    assert float(terms(method, batch)["distillation"].detach()) == pytest.approx(0, abs=1e-6)
    assert largest_gradient(method, terms(method, batch)["distillation"]) < 1e-5
    fit(method, SECOND)
    assert torch.equal(method.memory.logits[:10, :2], stored)
    end(method, SECOND)
    assert method.memory.known[:10].tolist() == [2] * 4 + [5] * 6


def test_the_distillation_knows_only_the_classes_of_its_time() -> None:
    method = lvt()
    learn(method, FIRST)
    begin(method, SECOND)
    logits = torch.randn(3, 5, requires_grad=True)
    slots = torch.tensor([0, 4, 9])
    told = (method.memory.logits[slots, :2] / 2).softmax(dim=1)
    expected = (told * (told.log() - (logits[:, :2] / 2).log_softmax(dim=1))).sum(dim=1).mean()
    found = method.forgotten(logits, slots)
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found, logits)
    assert torch.equal(gradient[:, 2:], torch.zeros(3, 3))


def test_predictions_do_not_read_the_injection_classifier() -> None:
    method = lvt()
    learn(method, FIRST)
    learn(method, SECOND)
    images = batch_of(method, SECOND).images
    with torch.no_grad():
        before, part = method.predict(images), method.parts()[INJECTION](images, method.features(images))
        move(method.injection)
        assert torch.equal(method.predict(images), before)
        assert not torch.equal(method.parts()[INJECTION](images, method.features(images)), part)
    assert part.shape == before.shape == (12, 5)


def test_old_injection_heads_rest() -> None:
    method = lvt()
    learn(method, FIRST)
    kept = {name: value.clone() for name, value in method.injection.parts[0].state_dict().items()}
    learn(method, SECOND)
    assert all(torch.equal(value, kept[name]) for name, value in method.injection.parts[0].state_dict().items())


def test_bytes_beside_images_are_logits_and_importances() -> None:
    method = lvt()
    learn(method, FIRST)
    weights = 2 * (4 * 4 * 4 + 4 * 9)  # blocks x (heads x tokens x width of a head + heads x offsets)
    assert method.prototype_bytes() == 10 * (2 * 4 + 8) + 4 * weights
