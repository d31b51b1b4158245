"""Attention maps against the readable definition: the map's weights, applied to the values, give the block's output."""

import math
from pathlib import Path

import torch
from helpers.serving import model_folder
from torch import Tensor

from gcab.classifier.learner import ContinualClassifier
from gcab.methods.gcab import Gcab
from gcab.methods.method import Method
from gcab.model.attention_map import class_attention_map
from gcab.model.class_attention import ClassAttention
from gcab.model.options import NetworkOptions
from gcab.serve.attention import attention_maps, scaled

WIDTH, HEADS, TOKENS = 8, 2, 4


def by_loops(block: ClassAttention, token: Tensor, features: Tensor, gate: Tensor) -> Tensor:
    """A of one image, written out head by head and token by token."""
    p = [block.norm_attention(row) * gate for row in (token, *features)]
    query, keys = block.query(p[0]) * gate, [block.key(row) * gate for row in p]
    size = WIDTH // HEADS
    total = torch.zeros(TOKENS)
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        weights = [math.exp(float(query[part] @ key[part]) / math.sqrt(size)) for key in keys]
        total += torch.tensor(weights[1:]) / sum(weights)
    return total / HEADS


def test_the_map_of_one_pass() -> None:
    torch.manual_seed(0)
    block = ClassAttention(WIDTH, HEADS, 2.0, NetworkOptions())
    token, features = torch.randn(WIDTH), torch.randn(3, TOKENS, WIDTH)
    gate = (torch.rand(WIDTH) > 0.3).float()
    with torch.no_grad():
        maps = class_attention_map(block, token, features, gate)
        for image in range(3):
            assert torch.allclose(maps[image], by_loops(block, token, features[image], gate), atol=1e-5)
        open_gate = class_attention_map(block, token, features, torch.ones(WIDTH))
        assert torch.equal(class_attention_map(block, token, features, None), open_gate)


def test_the_weights_are_those_that_make_the_output() -> None:
    """With one head, A V of the map and of the token's own share is what the block's attention gives."""
    torch.manual_seed(1)
    block = ClassAttention(WIDTH, 1, 2.0, NetworkOptions())
    token, features, gate = torch.randn(WIDTH), torch.randn(2, TOKENS, WIDTH), torch.rand(WIDTH)
    with torch.no_grad():
        maps = class_attention_map(block, token, features, gate)
        θ = token.expand(2, 1, -1)
        weights = torch.cat([1 - maps.sum(dim=1, keepdim=True), maps], dim=1)  # (B, 1 + N)
        values = block.value(block.norm_attention(torch.cat([θ, features], dim=1)) * gate) * gate
        expected = block.attend(θ, features, gate)
        assert torch.allclose(block.output(weights[:, None] @ values), expected, atol=1e-5)


def test_one_map_for_each_task_in_its_own_space(tmp_path: Path) -> None:
    method = ContinualClassifier.load(model_folder(tmp_path / "m.gcab"), device="cpu").method
    assert isinstance(method, Gcab)
    images, network = torch.randn(2, 3, 16, 16), method.network
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.normal_(std=0.5)  # so that gates, tokens and projectors all make a difference
        maps = attention_maps(method, images)
        assert maps is not None
        assert maps.shape == (2, 2, 64)
        features = network.encoder(images)
        spaces = network.cascade(features)
        for task in range(2):
            own = class_attention_map(network.block, network.tokens[task], spaces[task], network.masks(task)[0])
            assert torch.allclose(maps[:, task], own / own.max(dim=1, keepdim=True).values)
        uncompensated = class_attention_map(network.block, network.tokens[0], features, network.masks(0)[0])
        assert not torch.allclose(maps[:, 0], scaled(uncompensated), atol=1e-3)


def test_scaling() -> None:
    assert torch.allclose(scaled(torch.tensor([[0.1, 0.2], [0.0, 0.0]])), torch.tensor([[0.5, 1.0], [0.0, 0.0]]))


def test_a_network_without_a_class_token(tmp_path: Path) -> None:
    method = ContinualClassifier.load(model_folder(tmp_path / "m.gcab"), device="cpu").method

    class Other(Method):
        grow = loss = predict = None  # type: ignore[assignment]

    assert attention_maps(Other(method.setting, None), torch.zeros(1, 3, 16, 16)) is None
