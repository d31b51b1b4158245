"""Eq. ViTblock, ConViT's positional attention and its start as a convolution, drop-path, the frozen teacher."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import naive
from helpers.networks import scramble
from helpers.tasks import ENCODER, IMAGE_SIZE
from torch import nn

from gcab.config import resolve
from gcab.model.encoder import Block, DropPath, Encoder, EncoderConfig, GatedPositionalSelfAttention, SelfAttention
from gcab.model.frozen import Frozen
from gcab.runs.assemble import build_method


@pytest.mark.parametrize("kind", ["vit", "convit"])
def test_the_encoder_is_the_papers_blocks(kind: str) -> None:
    config = EncoderConfig(kind="vit" if kind == "vit" else "convit", **_small())
    encoder = Encoder(config, 12).double()
    scramble(encoder, seed=7)
    assert any(isinstance(m, GatedPositionalSelfAttention) for m in encoder.modules()) == (kind == "convit")
    generator = torch.Generator().manual_seed(8)
    images = torch.randn(2, 3, 12, 12, generator=generator, dtype=torch.float64)
    features = encoder(images)
    assert features.shape == (2, 9, 12)
    for image in range(2):
        expected = naive.encode(encoder, images[image])
        for token in range(9):
            assert naive.numbers(features[image, token]) == pytest.approx(expected[token], rel=1e-8, abs=1e-10)


def _small() -> dict[str, Any]:
    return {"blocks": 2, "width": 12, "heads": 3, "mlp_ratio": 2, "patch": 4, "drop_path": 0}


@pytest.mark.parametrize(("heads", "width"), [(9, 18), (12, 24)])
def test_nine_heads_start_by_looking_at_one_neighbour_each(heads: int, width: int) -> None:
    side = 5
    encoder = Encoder(EncoderConfig(blocks=2, width=width, heads=heads, patch=4), side * 4)
    interior = [y * side + x for y in range(1, side - 1) for x in range(1, side - 1)]
    for block in encoder.blocks:
        attention = block.attention
        assert isinstance(attention, GatedPositionalSelfAttention)
        assert torch.equal(attention.value.weight, torch.eye(width))
        assert torch.equal(attention.gate, torch.ones(heads))
        assert torch.equal(attention.position.weight[:9, 2], -torch.ones(9))  # ConViT's locality strength of 1
        neighbours = set()
        for head in range(9):
            positional = naive.positional_attention(attention, side, head)
            offsets = set()
            for token in interior:
                target = positional[token].index(max(positional[token]))
                offsets.add((target % side - token % side, target // side - token // side))
            assert len(offsets) == 1, f"head {head} does not look at the same neighbour from everywhere: {offsets}"
            neighbours |= offsets
        assert neighbours == {(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)}


def test_four_heads_start_by_looking_at_one_corner_each() -> None:
    """An even number of cells has its middle between two of them: each head shares four cells, none looks away."""
    side = 5
    encoder = Encoder(EncoderConfig(blocks=1, width=8, heads=4, patch=4), side * 4)
    attention = encoder.blocks[0].attention
    assert isinstance(attention, GatedPositionalSelfAttention)
    middle = side * side // 2
    corners = []
    for head in range(4):
        weights = naive.positional_attention(attention, side, head)[middle]
        seen = {n for n, weight in enumerate(weights) if weight == pytest.approx(max(weights), rel=1e-6)}
        corners.append({(n % side - side // 2, n // side - side // 2) for n in seen})
    expected = [{(x, y) for x in (0, dx) for y in (0, dy)} for dy in (-1, 1) for dx in (-1, 1)]
    assert corners == expected


def test_the_papers_encoder_has_the_size_the_authors_published() -> None:
    encoder = Encoder(EncoderConfig(), 32)
    assert encoder(torch.zeros(1, 3, 32, 32)).shape == (1, 64, 384)
    assert [block.get_submodule("attention").heads for block in encoder.blocks] == [12] * 5
    assert [block.get_parameter("mlp.0.weight").shape for block in encoder.blocks] == [(4 * 384, 384)] * 5


def rates_of(network: nn.Module) -> list[float]:
    return [float(module.rate) for module in network.modules() if isinstance(module, DropPath)]


@pytest.mark.parametrize("method", ["gcab", "gcab-fast", "finetune", "joint", "er"])
def test_paths_are_dropped_more_and_more_often_from_block_to_block(method: str) -> None:
    """The authors count the class-attention block as the last; ours drops none."""
    expected: dict[str, list[float]] = {
        "official": [0, 0.02, 0.04, 0.06, 0.08, 0.1],
        "extended": [0, 0.025, 0.05, 0.075, 0.1],
        "paper": [0, 0, 0, 0, 0],
    }
    for profile, rates in expected.items():
        small = {"encoder.width": 12, "encoder.patch": 16}
        network = build_method(resolve("cifar100/10", method, profile, changes=small)).get_submodule("network")
        assert rates_of(network) == pytest.approx(rates)
        assert rates_of(network.get_submodule("block")) == pytest.approx(rates[5:])


def test_one_block_alone_never_drops_and_is_followed_by_one_that_does() -> None:
    assert EncoderConfig(blocks=1).drop_rates() == [0, 0]
    assert EncoderConfig(blocks=1, drop_path_over="network").drop_rates() == [0, 0.1]


def test_drop_path_keeps_the_expectation_and_drops_whole_images() -> None:
    torch.manual_seed(9)
    drop = DropPath(0.3)
    images = 20_000
    branch = torch.full((images, 2, 3), 2.0)
    result = drop(branch)
    flat = result.flatten(1)
    assert torch.equal(flat, flat[:, :1].expand_as(flat))
    kept = flat[:, 0] != 0
    assert naive.numbers(flat[kept, 0].unique()) == pytest.approx([2 / 0.7])
    assert float(kept.double().mean()) == pytest.approx(0.7, abs=4 * (0.3 * 0.7 / images) ** 0.5)
    assert torch.equal(drop.eval()(branch), branch)


def test_each_branch_of_a_block_is_dropped_on_its_own() -> None:
    """Of an image's attention and MLP both, one or none are dropped, a quarter of the images each at a rate of 1/2."""
    torch.manual_seed(9)
    block = Block(SelfAttention(4, 2), 4, 2.0, drop_path=0.5)
    scramble(block, seed=2)
    images = 2000
    x = torch.randn(1, 3, 4).expand(images, -1, -1)
    with torch.no_grad():
        result = block(x)
        attended = x + 2 * block.attention(block.norm_attention(x))
        ways = [way + 2 * share * block.mlp(block.norm_mlp(way)) for way in (x, attended) for share in (0, 1)]
    chosen = torch.stack([(result - way).flatten(1).abs().amax(dim=1) < 1e-4 for way in ways])
    assert (chosen.sum(dim=0) == 1).all()
    assert naive.numbers(chosen.double().mean(dim=1)) == pytest.approx([0.25] * 4, abs=0.04)


def test_several_branches_are_drawn_as_one_after_the_other() -> None:
    drop = DropPath(0.5)
    torch.manual_seed(9)
    together = drop.kept(6, branches=3)
    torch.manual_seed(9)
    assert torch.equal(together, torch.cat([drop.kept(6) for _ in range(3)], dim=1))
    assert set(together.flatten().tolist()) == {0, 2}


def test_a_frozen_copy_neither_learns_nor_drops_nor_follows() -> None:
    torch.manual_seed(10)
    encoder = Encoder(replace(ENCODER, drop_path=0.9), IMAGE_SIZE)
    images = torch.randn(6, 3, IMAGE_SIZE, IMAGE_SIZE)
    expected = encoder.eval()(images).detach()
    owner = torch.nn.Sequential(encoder, Frozen(encoder))
    owner.train()
    teacher = owner[1]
    assert isinstance(teacher, Frozen)
    teacher.train()
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    scramble(encoder, seed=1)
    taught = teacher(images.requires_grad_())
    assert torch.equal(taught, expected)
    assert not taught.requires_grad
