"""The encoders beside the paper's: ResNet-18 of the other rows, LVT's learned keys, and a look into the attention."""

from pathlib import Path

import pytest
import torch
from small_b import SETTING, SIDE, batch_of, build, learn, tasks, terms
from torch import Tensor, distributed
from torch.multiprocessing.spawn import spawn

from gcab.config import resolve
from gcab.errors import GcabError
from gcab.fast.encoders import make_encoder
from gcab.model.encoder import Encoder, EncoderConfig, ExternalAttention
from gcab.model.resnet import BatchNorm, ResNet

pytestmark = pytest.mark.usefixtures("forked_interpreters")

RESNET = EncoderConfig("resnet18", width=16)


def some_images(count: int = 3, side: int = SIDE) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def test_resnet18_has_the_published_size() -> None:
    encoder = ResNet(EncoderConfig("resnet18", width=512), 32)
    with_head = sum(parameter.numel() for parameter in encoder.parameters()) + 512 * 100 + 100
    assert with_head == 11_220_132  # Mammoth's, with a head of 100 classes
    assert encoder.tokens == 16


@pytest.mark.parametrize(("side", "tokens"), [(8, 1), (32, 16), (20, 9)])
def test_the_last_feature_map_becomes_tokens(side: int, tokens: int) -> None:
    encoder = make_encoder(RESNET, side).eval()
    assert encoder.tokens == RESNET.tokens(side) == tokens
    assert encoder(some_images(side=side)).shape == (3, tokens, 16)


def test_heads_of_a_resnet_read_the_mean_of_its_map() -> None:
    method = build("finetune", {"kind": "resnet18"})
    learn(method, tasks(2)[0])
    images = some_images()
    feature = method.features(images).mean(dim=1)
    linear = method.network.head.parts[0].linear
    torch.testing.assert_close(method.predict(images), linear(feature))
    assert torch.equal(method.embed(images, 0, compensate=False), feature)


@pytest.mark.parametrize("kind", ["vit", "convit", "external"])
def test_observing_changes_nothing(kind: str) -> None:
    encoder = Encoder(EncoderConfig(kind, 2, 16, 4, 2.0, 4, 0.0), SIDE)  # type: ignore[arg-type]
    for what, shape in (("scores", (3, 4, 4, 4)), ("mixed", (3, 4, 4, 4))):
        tokens, seen = encoder.observe(some_images(), what)  # type: ignore[arg-type]
        assert torch.equal(tokens, encoder(some_images()))
        assert [tuple(part.shape) for part in seen] == [shape] * 2


def test_scores_are_those_before_the_softmax() -> None:
    encoder = Encoder(EncoderConfig("vit", 1, 16, 4, 2.0, 4, 0.0), SIDE)
    block = encoder.blocks[0]
    x = block.norm_attention(encoder.embed(some_images()))  # type: ignore[operator]
    q, k, v = block.attention.project(x)  # type: ignore[union-attr, operator]
    scores, mixed = (encoder.observe(some_images(), what)[1][0] for what in ("scores", "mixed"))
    torch.testing.assert_close(scores, q @ k.mT / 2)
    torch.testing.assert_close(mixed, scores.softmax(dim=-1) @ v)


def test_learned_keys_take_the_place_of_those_of_the_image() -> None:
    attention, x = ExternalAttention(16, 4, (3, 3)), torch.randn(2, 9, 16)
    assert sum(parameter.numel() for parameter in ExternalAttention(384, 12, (8, 8)).parameters()) - 3 * 384**2 == (
        24_576 + 384 + 12 * 15**2
    )  # keys, the output's bias, position biases
    with torch.no_grad():
        attention.bias.normal_()
    q, v = attention.split(attention.query(x)), attention.split(attention.value(x))
    scores = torch.einsum("bhnd,hmd->bhnm", q, attention.keys) / 2
    for here in range(9):
        for there in range(9):
            down, right = there // 3 - here // 3, there % 3 - here % 3
            scores[:, :, here, there] += attention.bias[:, (down + 2) * 5 + right + 2]
    mixed = torch.einsum("bhnm,bhmd->bhnd", scores.softmax(dim=-1), v)
    torch.testing.assert_close(attention(x), attention.output(mixed.transpose(1, 2).flatten(2)))


def test_a_frozen_teacher_does_not_follow_the_batch_statistics() -> None:
    method = build("sdc", {"kind": "resnet18"})
    first, second = tasks(2, 2)
    learn(method, first)
    method.grow(second)
    method.begin_task(second)
    method.train()
    before = {name: value.clone() for name, value in method.teacher.state_dict().items()}
    terms(method, batch_of(method, second))
    assert all(torch.equal(value, before[name]) for name, value in method.teacher.state_dict().items())


@pytest.mark.parametrize("method", ["gcab", "gcab-fast", "dytox", "ad"])
def test_methods_that_need_attention_say_so(method: str) -> None:
    with pytest.raises(GcabError, match="needs a transformer"):
        build(method, {"kind": "resnet18"})


def test_a_resnet_needs_neither_heads_nor_patches_that_fit() -> None:
    changes = {"encoder.kind": "resnet18", "encoder.width": 40, "encoder.patch": 5}
    assert resolve("digits/5", "er", changes=changes).encoder.tokens(SIDE) == 1
    with pytest.raises(GcabError, match="multiple of 8"):
        resolve("digits/5", "er", changes={"encoder.kind": "resnet18", "encoder.width": 12})


def statistics_on_a_rank(rank: int, folder: str) -> None:
    """What one of two processes computes of its half of a batch."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    norm, images = BatchNorm(3), some_images(4)[rank::2].requires_grad_()
    output = norm(images)
    (output * some_images(4)[rank::2].cos()).sum().backward()
    torch.save([output.detach(), images.grad, norm.running_mean, norm.running_var], f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_batch_statistics_are_those_of_all_processes(tmp_path: Path) -> None:
    spawn(statistics_on_a_rank, (str(tmp_path),), nprocs=2)
    halves = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    norm, images = BatchNorm(3), some_images(4).requires_grad_()
    output = norm(images)
    (output * some_images(4).cos()).sum().backward()
    for half, expected in enumerate([output.detach(), images.grad]):
        assert expected is not None
        together = torch.stack([halves[0][half], halves[1][half]], dim=1).flatten(0, 1)
        torch.testing.assert_close(together, expected)
    for rank in range(2):
        torch.testing.assert_close(halves[rank][2:], [norm.running_mean, norm.running_var])


def test_the_encoder_of_a_setting_is_built_once() -> None:
    assert isinstance(make_encoder(SETTING.encoder, SIDE), Encoder)
    assert isinstance(make_encoder(RESNET, SIDE), ResNet)
