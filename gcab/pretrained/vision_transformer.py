"""The vision transformer that ViT, DeiT, DINOv2 and CLIP's image tower have in common, in inference only.

What tells them apart is folded into the weights when they are read (`gcab.pretrained.folder`): positions are added to
the class token once, a scale behind a branch is part of its last matrix.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.model.encoder import EncoderConfig
from gcab.pretrained.description import Description
from gcab.pretrained.encoder import PretrainedEncoder, pooling


def quick_gelu(x: Tensor) -> Tensor:
    """x σ(1.702 x), as CLIP has it."""
    return x * torch.sigmoid(1.702 * x)


def tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "quick_gelu": quick_gelu,
    "gelu_new": tanh_gelu,
    "gelu_pytorch_tanh": tanh_gelu,
    "relu": functional.relu,
}


@dataclass(frozen=True)
class VisionShape:
    """The sizes of a vision transformer."""

    width: int
    blocks: int
    heads: int
    hidden: int  # units of an MLP
    patch: int  # pixels
    prefix: int  # tokens before those of the patches: class, distillation, registers
    activation: str
    epsilon: float  # of the norms
    pre_norm: bool  # one before the first block

    def __post_init__(self) -> None:
        sizes = (self.width, self.blocks, self.heads, self.hidden, self.patch, self.prefix)
        if not all(type(size) is int and size > 0 for size in sizes) or self.width % self.heads:
            raise ValueError(f"a transformer of {sizes} cannot be built")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"the activation {self.activation} is not known")


class Attention(nn.Module):
    """Multi-head self-attention with biases."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.output = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        split = self.query_key_value(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (3, B, heads, N, d)
        mixed = functional.scaled_dot_product_attention(split[0], split[1], split[2])
        return self.output(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """x' = x + SA(norm(x)); x'' = x' + MLP(norm(x'))."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[shape.activation]
        self.norm_attention = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.attention = Attention(shape)
        self.norm_mlp = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.first, self.second = nn.Linear(shape.width, shape.hidden), nn.Linear(shape.hidden, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.second(self.activation(self.first(self.norm_mlp(x))))


class VisionTransformer(PretrainedEncoder):
    """Frozen tokens, and for one vector an image the class token beside the mean of the patches."""

    purposes: ClassVar[dict[str, str]] = {
        "prefix": "pretrained encoder: class token and its like, with their positions",
        "position": "pretrained encoder: where in the image a patch is",
        **PretrainedEncoder.purposes,
    }
    areas: Tensor

    def __init__(self, config: EncoderConfig, description: Description) -> None:
        shape = VisionShape(**description.shape)
        super().__init__(config, description, shape.width)
        self.shape, side = shape, description.crop // shape.patch
        self.patches = nn.Conv2d(3, shape.width, kernel_size=shape.patch, stride=shape.patch)
        self.prefix = nn.Parameter(torch.zeros(1, shape.prefix, shape.width))
        self.position = nn.Parameter(torch.zeros(1, side**2, shape.width))
        self.pre_norm = nn.LayerNorm(shape.width, eps=shape.epsilon) if shape.pre_norm else nn.Identity()
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.blocks))
        self.norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.register_buffer("areas", pooling(side, self.grid[0]), persistent=False)
        self.requires_grad_(False).eval()

    @property
    def summary_width(self) -> int:
        return 2 * self.shape.width

    def encoded(self, images: Tensor) -> Tensor:
        """Every token behind the last norm, (B, prefix + N, D)."""
        patches = self.patches(self.prepared(images)).flatten(2).transpose(1, 2) + self.position
        x = self.pre_norm(torch.cat([self.prefix.expand(images.shape[0], -1, -1), patches], dim=1))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def summary(self, images: Tensor) -> Tensor:
        x = self.encoded(images)
        return torch.cat([x[:, 0], x[:, self.shape.prefix :].mean(dim=1)], dim=1)

    def look(self, images: Tensor) -> Tensor:
        """The tokens of the patches, averaged over areas: (B, tokens, D)."""
        return self.areas @ self.encoded(images)[:, self.shape.prefix :]
