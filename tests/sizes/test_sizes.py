"""Images from 64 to 384 pixels, grids that are not square, and weights that go from one size to another."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gcab.classifier.presets import first_config
from gcab.config import from_dict, resolve, to_dict
from gcab.errors import GcabError
from gcab.fast.encoders import make_encoder, resized_patches
from gcab.model.encoder import Encoder, EncoderConfig, GatedPositionalSelfAttention, resized_position
from gcab.runs.assemble import build_method
from gcab.sizes import Size, sides

SMALL = EncoderConfig(blocks=2, width=12, heads=4, patch=4)


def moved(encoder: Encoder) -> Encoder:
    """Nothing at its initial value, where symmetries could hide an error."""
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))
    return encoder.double().eval()


def mirrored(encoder: Encoder, size: tuple[int, int]) -> Encoder:
    """The encoder that does to an image's transpose what the given one does to the image."""
    other = Encoder(SMALL, (size[1], size[0])).double().eval()
    weights = {name: value.clone() for name, value in encoder.state_dict().items()}
    weights["patches.weight"] = weights["patches.weight"].transpose(2, 3).contiguous()
    weights["position"] = transposed(weights["position"], encoder.grid)
    for name in weights:
        if name.endswith("attention.position.weight"):
            weights[name] = weights[name][:, [1, 0, 2]]  # of dx, dy and the distance
    other.load_state_dict(weights)
    return other


def transposed(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    return tokens.unflatten(1, grid).transpose(1, 2).flatten(1, 2)


@pytest.mark.parametrize("size", [(8, 20), (20, 8), (4, 12), (16, 16)])
@pytest.mark.parametrize("kind", ["convit", "vit"])
def test_rows_and_columns_are_told_apart(size: tuple[int, int], kind: str) -> None:
    torch.manual_seed(0)
    encoder = moved(Encoder(replace(SMALL, kind=kind), size))  # type: ignore[arg-type]
    images = torch.rand(2, 3, *size, dtype=torch.double)
    tokens = encoder(images)
    assert tokens.shape == (2, size[0] * size[1] // 16, 12)
    if kind == "convit":
        other = mirrored(encoder, size)(images.transpose(2, 3))
        assert torch.allclose(transposed(tokens, encoder.grid), other, atol=1e-10)


def test_a_square_is_a_grid_of_equal_sides() -> None:
    encoders = []
    for size in (16, (16, 16)):
        torch.manual_seed(1)
        encoders.append(Encoder(SMALL, size).eval())
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(encoders[0](images), encoders[1](images))
    assert torch.equal(
        GatedPositionalSelfAttention(12, 4, 3).offsets, GatedPositionalSelfAttention(12, 4, (3, 3)).offsets
    )


@pytest.mark.parametrize("size", [63, 2, (16, 18), (18, 16)])
def test_a_size_that_does_not_divide_is_refused(size: Size) -> None:
    with pytest.raises(GcabError, match=r"pixels cannot be cut into patches of 4 x 4: give multiples of 4"):
        Encoder(SMALL, size)


@pytest.mark.parametrize("size", ["230", "224x230", "230x224", "0", "224x0"])
def test_a_run_of_such_a_size_is_refused(size: str) -> None:
    with pytest.raises(GcabError, match=rf"scenario\.image_size {size} is not a multiple of encoder\.patch 16: change"):
        resolve("imagenet100/10", "gcab", changes={"scenario.image_size": size})


@pytest.mark.parametrize("size", ["224x", "x224", "a", "224 224", "2x2x2", ""])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(
        GcabError, match=r"scenario\.image_size cannot be '.*': give pixels, or height x width as 48x96"
    ):
        resolve("imagenet100/10", "gcab", changes={"scenario.image_size": size})


def test_a_size_reads_and_writes_alike() -> None:
    config = resolve("imagenet100/10", "gcab", changes={"scenario.image_size": "224x320"})
    assert config.scenario.image_size == (224, 320)
    assert config.encoder.grid(config.scenario.image_size) == (14, 20)
    assert to_dict(config)["scenario"]["image_size"] == [224, 320]
    assert from_dict(to_dict(config)) == config
    assert resolve("digits/5", "eye", changes={"scenario.image_size": "8x8"}) == resolve("digits/5", "eye")
    with pytest.raises(GcabError, match=r"scenario\.image_size is \[8\]: it must be pixels, or height x width"):
        from_dict({"method": "eye", "scenario": {"image_size": [8]}})


def test_who_needs_squares_says_so() -> None:
    with pytest.raises(GcabError, match="the method pass needs square images, not 8 x 16 pixels: give scenario"):
        resolve("digits/5", "pass", changes={"scenario.image_size": (8, 16)})
    changes = {"scenario.image_size": "8x16", "encoder.kind": "pretrained", "encoder.weights": "some"}
    with pytest.raises(GcabError, match="a pretrained encoder needs square images"):
        resolve("digits/5", "finetune", changes=changes)


@pytest.mark.parametrize(
    ("size", "patch"),
    [
        (8, 2),
        (16, 2),
        (64, 8),
        (384, 48),
        ((48, 96), 8),
        ((48, 64), 8),
        ((64, 256), 16),
        ((8, 384), 8),
        ((120, 128), 8),
    ],
)
def test_a_lesson_has_about_64_patches(size: Size, patch: int) -> None:
    config = first_config("finetune", "tiny", "plain", None, 1, {}, size)
    assert (config.encoder.patch, config.scenario.image_size) == (patch, size)
    assert 16 <= config.encoder.tokens(size) <= 256


@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        (30, "image_size is 30: give a multiple of 8 from 8 to 384, or two as 48x96."),
        ((16, 392), "image_size is 16x392: give a multiple of 8"),
        ((184, 192), "cut into 552 patches of 8 x 8, .* such as 192x192."),
        ((384, 200), "cut into 1200 patches of 8 x 8, .* such as 384x192."),
    ],
)
def test_a_lesson_of_another_size_is_refused(size: Size, sentence: str) -> None:
    with pytest.raises(GcabError, match=sentence):
        first_config("finetune", "tiny", "plain", None, 1, {}, size)


@pytest.mark.parametrize("size", [64, 96, 128, 224, 256, 384])
def test_every_size_from_64_to_384_predicts(size: int) -> None:
    config = first_config("untrained", "tiny", "plain", None, 1, {}, size)
    assert config.encoder.tokens(size) == 64
    images = torch.rand(1, 3, size, size)
    assert Encoder(config.encoder, size)(images).shape == (1, 64, config.encoder.width)
    fine = replace(SMALL, patch=16)
    assert Encoder(fine, size)(images).shape == (1, (size // 16) ** 2, 12)


@pytest.mark.parametrize(("size", "side"), [(16, 32), (32, 32), (64, 64), (224, 64)])
def test_a_lesson_of_larger_photos_is_seen_sharper(size: int, side: int) -> None:
    assert first_config("gcab", "tiny", "plain", None, 1, {}, size).options.eye_side == side
    assert first_config("eye", "tiny", "plain", None, 1, {}, size).options.side == side
    assert first_config("eye", "tiny", "plain", None, 1, {"options.side": 32}, size).options.side == 32


@pytest.mark.parametrize(("scenario", "side"), [("cifar100/10", 32), ("tiny-imagenet/10", 64), ("imagenet100/10", 64)])
def test_a_data_set_of_larger_images_is_seen_sharper(scenario: str, side: int) -> None:
    assert resolve(scenario, "gcab").options.eye_side == side
    assert resolve(scenario, "eye").options.side == side
    assert resolve(scenario, "eye", changes={"options.side": 32}).options.side == 32
    assert not hasattr(resolve(scenario, "finetune").options, "side")


@pytest.mark.parametrize(("method", "option"), [("gcab", "eye_tones"), ("eye", "tones")])
def test_lessons_see_tones_and_benchmarks_do_not(method: str, option: str) -> None:
    assert getattr(first_config(method, "tiny", "plain", None, 1, {}, 32).options, option) == 16
    assert getattr(first_config(method, "tiny", "plain", None, 1, {f"options.{option}": 0}, 32).options, option) == 0
    assert getattr(resolve("cifar100/10", method).options, option) == 0


def smooth(rows: int, columns: int) -> Tensor:
    """A pattern that looks the same at every resolution: (1, N, 2)."""
    y, x = ((torch.arange(count) + 0.5) / count for count in (rows, columns))
    return torch.stack(torch.meshgrid(torch.cos(2 * y), torch.sin(3 * x), indexing="ij"), dim=-1).flatten(0, 1)[None]


@pytest.mark.parametrize("before", [(8, 8), (8, 16)])
@pytest.mark.parametrize("grid", [(14, 14), (5, 5), (12, 6), (16, 8)])
def test_position_embeddings_keep_their_pattern(before: tuple[int, int], grid: tuple[int, int]) -> None:
    found = resized_position(smooth(*before).unflatten(1, before), grid)
    assert found.shape == (1, grid[0] * grid[1], 2)
    assert (found - smooth(*grid)).abs().max() < 0.08
    assert (resized_position(torch.full((1, *before, 3), 0.5), grid) - 0.5).abs().max() < 1e-6


@pytest.mark.parametrize("side", [8, 6, 16, 2])
def test_patches_answer_alike_to_the_same_picture(side: int) -> None:
    patches = functional.interpolate(torch.rand(5, 3, 2, 2), (4, 4), mode="bilinear")  # smooth
    picture = torch.rand(1, 3, 1, 1)
    one, other = (
        (picture.expand(1, 3, size, size) * kernels).sum(dim=(1, 2, 3))
        for size, kernels in ((4, patches), (side, resized_patches(patches, side)))
    )
    assert torch.allclose(one, other, rtol=0.05)


def weights_of(encoder: Encoder) -> dict[str, Tensor]:
    """As `encoder_of` gives them: the position embedding with its rows and columns."""
    weights = encoder.state_dict()
    return {**weights, "position": weights["position"].unflatten(1, encoder.grid)}


@pytest.mark.parametrize("size", [(8, 8), (32, 32), (16, 40)])
@pytest.mark.parametrize("before", [16, (8, 12)])
def test_weights_of_another_size_are_used(before: Size, size: tuple[int, int]) -> None:
    source = moved(Encoder(SMALL, before)).float()
    encoder = make_encoder(SMALL, size, weights_of(source)).eval()
    for name, value in source.state_dict().items():
        if name != "position":
            assert torch.equal(encoder.state_dict()[name], value), name
    assert encoder(torch.rand(1, 3, *size)).isfinite().all()
    same = make_encoder(SMALL, before, weights_of(source)).eval()
    images = torch.rand(1, 3, *sides(before))
    assert torch.equal(same(images), source(images))


def test_weights_of_another_shape_are_refused_still() -> None:
    source = Encoder(replace(SMALL, width=16), 16)
    with pytest.raises(GcabError, match="has another shape than this one"):
        make_encoder(SMALL, 32, weights_of(source))


def test_a_model_of_another_size_gives_its_encoder_to_a_lesson() -> None:
    """`learn --size` keeps 8 x 8 patches, so it is their size that differs."""
    source = Encoder(first_config("finetune", "tiny", "plain", None, 1, {}, 64).encoder, 64)
    larger = first_config("finetune", "tiny", "plain", None, 1, {}, 128)
    encoder = make_encoder(larger.encoder, 128, weights_of(source)).eval()
    assert isinstance(encoder, Encoder)
    images = functional.interpolate(torch.rand(1, 3, 2, 2), (64, 64), mode="bilinear")
    enlarged = functional.interpolate(images, (128, 128), mode="bilinear")
    one, other = source.eval().embed(images), encoder.embed(enlarged)
    assert (one - other).abs().max() < 0.1 * one.abs().max()
    build_method(larger)
