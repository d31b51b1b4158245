"""Finished tasks keep their decoder, bit for bit, whatever is learned afterwards and with whatever optimiser."""

import pytest
import torch
from helpers.tasks import WIDTH, gcab_options, images_of, tasks_of
from helpers.world import (
    OPTIMISERS,
    SETTING,
    fixed_features,
    head_logits,
    isolating_options,
    learn,
    new_gcab,
    same,
    snapshot,
    train,
    with_network,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gcab.methods.gcab import Gcab
from gcab.model.class_attention import ClassAttention

pytestmark = pytest.mark.repeats

quick = settings(max_examples=15, derandomize=True)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name", isolating_options())
def test_old_logits_on_fixed_features_never_change(name: str, optimiser: str) -> None:
    method = new_gcab(isolating_options()[name])
    tasks = tasks_of(2, 3, 2)
    promised: list[torch.Tensor] = []
    for task in tasks:
        method.grow(task)
        # With binarise="next" the gates of the task before turn hard here, so this is where its promise begins.
        now = head_logits(method.network, task.index)
        assert same(now[: len(promised)], promised)
        promised = now
        before = snapshot(method.network.block)
        method.begin_task(task)
        train(method, task, OPTIMISERS[optimiser])
        moved = [
            name for name, value in method.network.block.state_dict().items() if not torch.equal(value, before[name])
        ]
        assert {"query.weight", "expand.weight", "contract.weight"} <= set(moved), "the shared weights did not learn"
        assert same(head_logits(method.network, task.index), promised)
        method.end_task(task, images_of(task))
        assert same(head_logits(method.network, task.index), promised)
    assert all(bool(logits.isfinite().all()) for logits in promised)


@pytest.mark.parametrize("name", ["official", "paper, binarised at the end"])
def test_old_logits_never_change_in_mixed_precision(name: str) -> None:
    method = new_gcab(isolating_options()[name])
    first, second = tasks_of(2, 2)
    learn(method, first, OPTIMISERS["adamw"])
    method.grow(second)
    method.begin_task(second)
    # One context spans many steps here, so casts of weights must not be remembered from one step to the next.
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        promised = head_logits(method.network, 1)
        assert promised[0].dtype == torch.bfloat16
        train(method, second, OPTIMISERS["adamw"])
        assert same(head_logits(method.network, 1), promised)


def test_gates_that_are_never_binarised_protect_only_softly() -> None:
    """The text to the letter: a half-open unit is used and goes on learning, so old logits move."""
    method = new_gcab(gcab_options("paper", {"sharpest": 2.0}))  # σ(s_max e) far from 0 and 1
    first, second = tasks_of(2, 2)
    learn(method, first, OPTIMISERS["sgd"])
    method.grow(second)
    masks = dict(method.network.updatable())
    assert any(bool(((mask > 0) & (mask < 1)).any()) for mask in masks.values())
    before = head_logits(method.network, 1)
    method.begin_task(second)
    train(method, second, OPTIMISERS["sgd"])
    assert not same(head_logits(method.network, 1), before)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("profile", ["official", "paper"])
def test_weights_that_earlier_tasks_own_never_move(profile: str, optimiser: str) -> None:
    method = new_gcab(gcab_options(profile))  # paper with its soft gates too: M = 0 is a promise there as well
    tasks = tasks_of(2, 2, 2)
    learn(method, tasks[0], OPTIMISERS[optimiser])
    for task in tasks[1:]:
        method.grow(task)
        owned = [(p, mask == 0, p.detach().clone()) for p, mask in method.network.updatable()]
        assert all(bool(is_owned.any()) for _, is_owned, _ in owned)
        method.begin_task(task)
        train(method, task, OPTIMISERS[optimiser])
        for parameter, is_owned, before in owned:
            assert torch.equal(parameter[is_owned], before[is_owned])
        assert any(not torch.equal(parameter, before) for parameter, _, before in owned)
        method.end_task(task, images_of(task))


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name", ["official", "paper, binarised at the end"])
def test_what_belongs_to_an_older_task_stops_learning_and_never_moves(name: str, optimiser: str) -> None:
    method = new_gcab(isolating_options()[name])
    tasks = tasks_of(2, 2, 2)
    network = method.network
    for task in tasks[:2]:
        learn(method, task, OPTIMISERS[optimiser])
    method.grow(tasks[2])
    older = [*network.heads[:2], *network.cascade.projectors[:1]]
    parameters = [parameter for module in older for parameter in module.parameters()]
    parameters += [gate.embedding(t) for gate in (network.gate_in, network.gate_hidden) for t in range(2)]
    newest = [*network.heads[2].parameters(), *network.cascade.projectors[1].parameters()]
    newest += [gate.embedding(2) for gate in (network.gate_in, network.gate_hidden)]
    if network.options.class_token == "per_task":
        parameters += list(network.tokens)[:2]
    newest.append(network.tokens[-1])
    if network.options.freeze_norms:
        norms = [*network.encoder.norms(), *network.block.norms()]
        parameters += [parameter for norm in norms for parameter in norm.parameters()]
    assert not any(parameter.requires_grad for parameter in parameters)
    assert all(parameter.requires_grad for parameter in newest)
    before = [parameter.detach().clone() for parameter in parameters]
    newest_before = [parameter.detach().clone() for parameter in newest]
    method.begin_task(tasks[2])
    train(method, tasks[2], OPTIMISERS[optimiser])
    assert same([parameter.detach() for parameter in parameters], before)
    assert not any(torch.equal(parameter, value) for parameter, value in zip(newest, newest_before, strict=True))


@quick
@given(seed=st.integers(0, 10_000), name=st.sampled_from(list(isolating_options())), share=st.floats(0.05, 0.95))
def test_no_path_leads_from_an_unowned_weight_to_an_old_feature(seed: int, name: str, share: float) -> None:
    """However wildly everything with M > 0 changes, what a gated pass shows its head stays the same."""
    generator = torch.Generator().manual_seed(seed)
    options = isolating_options()[name].network
    block = ClassAttention(WIDTH, 4, 2.0, options)
    token = torch.randn(WIDTH, generator=generator)
    m_i = (torch.rand(WIDTH, generator=generator) < share).float()
    m_2 = (torch.rand(2 * WIDTH, generator=generator) < share).float()
    features = fixed_features()
    sites = m_i if options.mask_classifier else torch.ones(WIDTH)
    with torch.no_grad():
        before = block(token, features, m_i, m_2) * sites
        for parameter, mask in block.updatable(m_i, m_2):
            parameter.add_(mask * torch.randn(parameter.shape, generator=generator) * 100)
        if options.class_token == "shared":
            token = token + (1 - m_i) * 100
        assert torch.equal(block(token, features, m_i, m_2) * sites, before)


@quick
@given(
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    optimiser=st.sampled_from(list(OPTIMISERS)),
    name=st.sampled_from(list(isolating_options())),
    gate_mean=st.floats(-1.5, 1.5),
    seed=st.integers(0, 10_000),
)
def test_capacity_grows_within_bounds_and_old_logits_stay(
    sizes: list[int], optimiser: str, name: str, gate_mean: float, seed: int
) -> None:
    method = new_gcab(with_network(isolating_options()[name], gate_mean=gate_mean), seed)
    promised: list[torch.Tensor] = []
    used = {"input": 0.0, "hidden": 0.0}
    masks: list[torch.Tensor] = [torch.zeros(WIDTH), torch.zeros(2 * WIDTH)]
    for task in tasks_of(*sizes):
        method.grow(task)
        promised += head_logits(method.network, task.index)[len(promised) :]
        method.begin_task(task)
        train(method, task, OPTIMISERS[optimiser], epochs=1)
        method.end_task(task, images_of(task))
        capacity = method.capacity()
        assert capacity.keys() == used.keys()
        assert all(used[gate] <= capacity[gate] <= 1 for gate in used)
        used = capacity
        gates = [method.network.gate_in, method.network.gate_hidden]
        assert all(bool((gate.used >= mask).all()) for gate, mask in zip(gates, masks, strict=True))
        masks = [gate.used.clone() for gate in gates]
        assert same(head_logits(method.network, task.index), promised)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_on_a_frozen_encoder_nothing_is_forgotten(optimiser: str) -> None:
    """Not even the encoder moves: what old heads say about images stays the same, bit for bit."""
    method = new_gcab(gcab_options("official", drift="frozen"))
    first, *later = tasks_of(2, 2, 2)
    start = snapshot(method.network.encoder)
    learn(method, first, OPTIMISERS[optimiser])
    learned = snapshot(method.network.encoder)
    assert not any(torch.equal(learned[name], start[name]) for name in ("position", "blocks.0.mlp.0.weight"))
    images = SETTING.normalise(images_of(first).images)
    method.grow(later[0])  # the gates of task 1 turn hard here
    with torch.no_grad():
        promised = method.predict(images)[:, :2]
    for task in later:
        if task is not later[0]:
            method.grow(task)
        method.begin_task(task)
        assert method.teacher is None, "there is no drift to measure"
        train(method, task, OPTIMISERS[optimiser])
        method.end_task(task, images_of(task))
        with torch.no_grad():
            assert torch.equal(method.predict(images)[:, :2], promised)
    assert all(torch.equal(value, learned[name]) for name, value in method.network.encoder.state_dict().items())


def full_after_first_task(name: str) -> Gcab:
    method = new_gcab(with_network(isolating_options()[name], gate_mean=5.0, gate_std=0.1))
    learn(method, tasks_of(2)[0], OPTIMISERS["adamw"], epochs=1)
    assert method.capacity() == {"input": 1.0, "hidden": 1.0}
    return method


@pytest.mark.parametrize("name", ["official", "paper, binarised at the end"])
def test_at_full_capacity_a_new_task_still_learns_over_frozen_weights(name: str) -> None:
    method = full_after_first_task(name)
    task = tasks_of(2, 2)[1]
    method.grow(task)
    promised, block = head_logits(method.network, 1), snapshot(method.network.block)
    method.begin_task(task)
    losses = train(method, task, lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1), epochs=25)
    assert all(loss < float("inf") for loss in losses)  # NaN compares false
    assert losses[-1] < 0.7 * losses[0]
    method.end_task(task, images_of(task))
    assert same(head_logits(method.network, 1), promised)
    assert all(torch.equal(value, block[name]) for name, value in method.network.block.state_dict().items())
    assert method.capacity() == {"input": 1.0, "hidden": 1.0}
