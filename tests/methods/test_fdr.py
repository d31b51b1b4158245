"""FDR: outputs of the end of a task, compared over the classes that were known then."""

from typing import Any

import pytest
import torch
from method_drive import START, begun, images_of, learned, made, prepared, scrambled, stream, twins

from gcab.errors import GcabError
from gcab.methods.fdr import Fdr, FdrOptions
from gcab.methods.finetune import Finetune

TASKS = stream(2, 3)


def test_right_after_a_task_the_term_is_zero() -> None:
    method: Fdr = made(Fdr, buffer=12, drop_path=0.5, future="ignore")
    learned(method, TASKS[0])
    stored = method.memory.everything()
    assert float(method.distance(method.answers(stored.images), stored.labels, torch.arange(12))) < 2e-6
    begun(method, TASKS[1])
    batch = prepared(method, images_of(TASKS[1], 12))
    term = method.eval().loss(batch, START)["function"]
    assert float(term.detach()) == pytest.approx(0, abs=2e-6)
    scrambled(method)
    assert float(method.loss(batch, START)["function"].detach()) > 1e-3


def test_a_new_class_may_not_claim_an_old_image() -> None:
    found = {}
    for future in ("zero", "ignore"):
        method: Fdr = made(Fdr, buffer=4, future=future)
        for task in TASKS:
            begun(method, task)
        logits = torch.zeros(1, 5)
        logits[0, 4] = 9.0
        found[future] = float(method.distance(logits, torch.tensor([0]), torch.tensor([0])))
    assert found["ignore"] < 1e-5
    assert found["zero"] > 1


def test_without_weight_it_is_fine_tuning_bit_for_bit() -> None:
    method, plain = made(Fdr, buffer=9, weight=0.0), made(Finetune, loss="ce")
    for one in (method, plain):
        learned(one, *TASKS)
    assert twins(method, plain)


def test_the_distance_is_a_norm_over_the_classes_known_then() -> None:
    method: Fdr = made(Fdr, buffer=4)
    for task in TASKS:
        begun(method, task)
    generator = torch.Generator().manual_seed(3)
    method.memory.get_buffer("logits").copy_(torch.randn(4, 5, generator=generator))
    stored = method.memory.get_buffer("logits")
    labels, slots, now = torch.tensor([0, 4]), torch.tensor([2, 1]), torch.randn(2, 5, generator=generator)
    before = torch.cat([stored[2, :2].softmax(0), torch.zeros(3)])
    first = (now[0].softmax(0) - before).norm()
    second = (now[1].softmax(0) - stored[1].softmax(0)).norm()
    torch.testing.assert_close(method.distance(now, labels, slots), (first + second) / 2)


def test_outputs_are_stored_for_each_image_and_counted() -> None:
    method: Fdr = made(Fdr, buffer=11)
    learned(method, *TASKS)
    stored = method.memory.everything()
    assert len(stored.labels) == 10
    expected = method.answers(stored.images)
    newest = stored.labels >= 2
    torch.testing.assert_close(method.memory.get_buffer("logits")[:10][newest], expected[newest])
    assert method.prototype_bytes() == 11 * 5 * 4


def test_a_wrong_option_is_named() -> None:
    changes: dict[str, Any] = {"weight": -1.0}
    with pytest.raises(GcabError, match=r"options\.weight"):
        FdrOptions(**changes)
