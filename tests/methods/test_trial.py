"""The network on trial: beside the eye it has no more say than helps with the classes of all tasks."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from helpers.eyes import eye, many
from helpers.models import lessons
from helpers.tasks import gcab_options, images_of, setting, tasks_of

from gcab.config import resolve
from gcab.methods.gcab import Gcab
from gcab.methods.method import grow
from gcab.methods.pseudo_features import pseudo_opinions
from gcab.model.referee import EYE, HEADS, STATISTICS

TASKS = tasks_of(2, 3)


def learned(trial: bool = True) -> Gcab:
    """Two tasks, without training: what the statistics and the eye know."""
    method = Gcab(setting(), gcab_options("extended", eye=64, trial=trial)).eval()
    for task in TASKS:
        grow(method, task, seed=1)
        method.begin_task(task)
        method.end_task(task, images_of(task), images_of(task, count=12, seed=1))
    return method


def test_imitations_are_held_out_images_moved_to_the_means_of_older_classes() -> None:
    method, held_out = learned(), images_of(TASKS[1], count=6, seed=1)
    said, labels = pseudo_opinions(method, held_out, [0, 1])
    assert labels.tolist() == [0] * 6 + [1] * 6
    assert {name: tuple(logits.shape) for name, logits in said.items()} == dict.fromkeys(
        (HEADS, STATISTICS, EYE), (12, 5)
    )
    statistics, ridge = method.statistics, method.eye.ridge if method.eye else None
    assert ridge is not None
    real = method.opinions_on(held_out.images)
    own = held_out.labels
    weight = statistics.weight.double()
    for place, older in enumerate((0, 1)):
        step = (statistics.means[older] - statistics.means[own]).flatten(1).double()
        found = said[STATISTICS][6 * place : 6 * place + 6] - real[STATISTICS]
        assert torch.allclose(found.double(), step @ weight.T, atol=1e-2 * float(weight.abs().max()))
        means = ridge.sums / ridge.counts[:, None]
        found = said[EYE][6 * place : 6 * place + 6] - real[EYE]
        assert torch.allclose(found, (means[older] - means[own]) @ ridge.weight.T, atol=1e-4)


def test_a_first_task_has_nothing_to_imitate() -> None:
    said, labels = pseudo_opinions(learned(), images_of(TASKS[0]), [])
    assert len(labels) == 0
    assert {len(logits) for logits in said.values()} == {0}


def test_a_network_that_never_learned_does_not_spoil_what_the_eye_knows() -> None:
    method = learned()
    assert method.referee is not None
    assert method.referee.weights.tolist()[:2] == [0.0, 0.0]
    assert method.verdict() == "the eye alone decides: nothing shows that the network would name more photos right"
    images = setting().normalise(torch.cat([images_of(task, seed=7).images for task in TASKS]))
    assert torch.equal(
        method.predict(images).argmax(dim=1), method.parts()[EYE](images, method.features(images)).argmax(1)
    )


def test_without_a_trial_the_referee_is_as_it_was_fitted() -> None:
    method = learned(trial=False)
    assert method.referee is not None
    assert any(method.referee.weights.tolist()[:2])
    assert method.verdict() is None


def test_training_answers_only_where_the_network_is_heard() -> None:
    for trial in (True, False):
        method = learned(trial)
        assert method.referee is not None
        assert method.answers_by_training == (not trial)
        method.referee.weights.fill_(1.0)
        assert method.answers_by_training
        method.referee.weights[:2] = 0.0
        assert not method.answers_by_training
    assert not eye().learn(*many(0, 1)).method.answers_by_training


@pytest.mark.parametrize("missing", [{"eye": 0}, {"statistics": False}])
def test_what_cannot_be_tried_is_not(missing: Mapping[str, int]) -> None:
    changes: dict[str, Any] = {"eye": 64, "trial": True, **missing}
    method = Gcab(setting(), gcab_options("extended", **changes)).eval()
    grow(method, TASKS[0], seed=1)
    method.end_task(TASKS[0], images_of(TASKS[0]), images_of(TASKS[0], count=12, seed=1))
    assert method.verdict() is None


def test_lessons_try_the_network_and_research_does_not() -> None:
    *_, model = lessons([["a", "b"], ["c", "d"]])
    assert model.config.options.trial
    assert not resolve("cifar100/10", "gcab").options.trial
