"""Costs against counts by hand: parameters, multiply-accumulates of every product, floating-point operations."""

import pytest
import torch

from gcab.bench.cost import count_macs, estimate, matmul_rate, meta_method
from gcab.config import resolve
from gcab.data.scenario import Scenario
from gcab.data.tasks import Task
from gcab.methods.method import parameter_count

D, HIDDEN, BLOCKS, PATCH, SIZE = 16, 32, 2, 4, 8
N = (SIZE // PATCH) ** 2
TINY = {
    "encoder.kind": "vit",
    "encoder.width": D,
    "encoder.heads": 4,
    "encoder.blocks": BLOCKS,
    "encoder.mlp_ratio": HIDDEN / D,
    "encoder.patch": PATCH,
    "training.epochs": 3,
}
TASKS = (Task(0, 0, ("a", "b")), Task(1, 2, ("c", "d", "e")))


def encoder_macs() -> int:
    patches = N * (3 * PATCH**2) * D
    attention = 3 * N * D * D + 2 * N * N * D + N * D * D  # q, k and v; logits and mixture; output
    return patches + BLOCKS * (attention + 2 * N * D * HIDDEN)


def decoder_macs(classes: int) -> int:
    """One pass of class-attention: one query, N + 1 keys and values."""
    attention = D * D + 2 * (N + 1) * D * D + 2 * (N + 1) * D + D * D
    return attention + 2 * D * HIDDEN + D * classes


def test_a_plain_network_counted_by_hand() -> None:
    config = resolve("digits/2", "finetune", "official", changes=TINY)
    cost = estimate(config, TASKS, [10, 20])
    assert cost.encoder_macs == encoder_macs()
    assert cost.predict_macs == encoder_macs() + decoder_macs(5)
    norms, mlp = 2 * D, D * HIDDEN + HIDDEN + HIDDEN * D + D
    block = 2 * norms + 4 * D * D + D + mlp  # only the output has a bias among the attention's layers
    encoder = (3 * PATCH**2 + 1) * D + N * D + BLOCKS * block
    heads = sum(norms + (D + 1) * task.classes for task in TASKS)
    assert cost.parameters == encoder + block + D + heads  # the decoder is one more block, D is its token


@pytest.mark.repeats
def test_the_cost_of_training_counts_forward_and_backward() -> None:
    config = resolve("digits/2", "gcab", "official", changes=TINY)
    [first], both = TASKS[:1], TASKS
    one = count_macs(meta_method(config, (first,)), SIZE)
    two = count_macs(meta_method(config, both), SIZE)
    assert one[0] == two[0] == encoder_macs()
    expected = 2 * 3 * (10 * 3 * one[1] + 20 * 3 * two[1])
    assert estimate(config, both, [10, 20]).training_flops == pytest.approx(expected)


def test_more_tasks_cost_more_passes_and_projectors() -> None:
    config = resolve("digits/2", "gcab", "official", changes=TINY)
    one, two = (count_macs(meta_method(config, TASKS[:count]), SIZE)[1] for count in (1, 2))
    projector = 2 * N * D * D
    assert one < two <= encoder_macs() + projector + decoder_macs(2) + decoder_macs(3)
    assert two > encoder_macs() + projector


def test_the_papers_network_has_the_published_size() -> None:
    """Reading notes: 13.9 M parameters, 0.57 G in the encoder's layers, 0.94 G with ten passes."""
    config = resolve("cifar100/10", "gcab", "official")
    scenario = Scenario.build(config.scenario, config.seed, [str(label) for label in range(100)])
    method = meta_method(config, scenario.tasks)
    encoder, whole = count_macs(method, 32)
    tokens, width = 64, 384
    layers = tokens * 48 * width + 5 * tokens * 12 * width**2
    assert layers == pytest.approx(0.57e9, rel=0.01)
    assert layers < encoder < 1.05 * layers
    cascade = 9 * 2 * tokens * width**2
    assert encoder + cascade < whole < 0.98e9
    assert parameter_count(method) == pytest.approx(13.9e6, rel=0.005)


def test_the_rate_of_matrix_products_is_positive() -> None:
    assert 1e8 < matmul_rate(torch.device("cpu"), bfloat16=False) < 1e15
