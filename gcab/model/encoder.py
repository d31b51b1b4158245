"""The encoder b(x; Ψ): patches, position embedding, M self-attention blocks (paper, Eq. ViTblock)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.errors import GcabError
from gcab.parallel.ranks import uniform
from gcab.sizes import Size, pixels, sides

PRETRAINED_SIDE = 7  # cells a side to which the tokens of a pretrained encoder are average-pooled
RESNET_STRIDE = 8  # pixels between neighbours in the last feature map of a ResNet with a stem of stride 1
Observed = Literal["scores", "mixed"]


@dataclass(frozen=True)
class EncoderConfig:
    """The paper's encoder; D = `width`, M = `blocks`, N = (image size / `patch`)².

    `external` has learned keys (LVT). `resnet18` is that of the paper's other rows: it uses `width` alone, 512 there.
    `pretrained` never learns: it is read from `weights`, and its width follows.
    """

    kind: Literal["vit", "convit", "external", "resnet18", "pretrained"] = "convit"  # text: vit; authors: convit (GPSA)
    blocks: int = 5
    width: int = 384
    heads: int = 12
    mlp_ratio: float = 4.0
    patch: int = 4
    drop_path: float = 0.1  # rises linearly from 0 in the first block to this in the last
    drop_path_over: Literal["encoder", "network"] = "encoder"  # authors: network, whose last block is class-attention
    weights: str = ""  # a run or a model whose encoder to start from; of a pretrained one: a folder, a file or a name

    def grid(self, image_size: Size) -> tuple[int, int]:
        """Rows and columns of tokens."""
        height, width = sides(image_size)
        if self.kind == "resnet18":
            return -(-height // RESNET_STRIDE), -(-width // RESNET_STRIDE)
        if self.kind == "pretrained":
            return PRETRAINED_SIDE, PRETRAINED_SIDE
        if min(height, width) < self.patch or height % self.patch or width % self.patch:
            raise GcabError(
                f"images of {pixels(image_size)} cannot be cut into patches of {self.patch} x {self.patch}: "
                f"give multiples of {self.patch}."
            )
        return height // self.patch, width // self.patch

    def tokens(self, image_size: Size) -> int:
        return math.prod(self.grid(image_size))

    def drop_rates(self) -> list[float]:
        """Stochastic depth rates: of each encoder block and, last, of the decoder block."""
        if self.drop_path_over == "network":
            return [self.drop_path * index / self.blocks for index in range(self.blocks + 1)]
        return [*(self.drop_path * index / max(1, self.blocks - 1) for index in range(self.blocks)), 0.0]


class SelfAttention(nn.Module):
    """Multi-head self-attention over the patch tokens."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key = nn.Linear(width, 2 * width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(self.mix(*self.project(x)))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K and V, each (B, heads, N, D / heads)."""
        q, k = (self.split(part) for part in self.query_key(x).chunk(2, dim=-1))
        return q, k, self.split(self.value(x))

    def observe(self, x: Tensor, what: Observed) -> tuple[Tensor, Tensor]:
        """`forward`, and per head the scores Q K^T / sqrt(d) (B, heads, N, N) or outputs (B, heads, N, D / heads)."""
        q, k, v = self.project(x)
        mixed = self.mix(q, k, v)
        return self.join(mixed), q @ k.mT * q.shape[-1] ** -0.5 if what == "scores" else mixed

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def join(self, mixed: Tensor) -> Tensor:
        return self.output(mixed.transpose(1, 2).flatten(2))


class OffsetScores(nn.Module):
    """A linear layer from offsets to one score per head, written as a sum: a product of three columns is slower."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(heads, 3), std=0.02))
        self.bias = nn.Parameter(torch.zeros(heads))

    def forward(self, offsets: Tensor) -> Tensor:
        return (offsets * self.weight[:, None, None]).sum(dim=-1) + self.bias[:, None, None]  # (heads, N, N)


class GatedPositionalSelfAttention(SelfAttention):
    """ConViT's GPSA: (1 - g) softmax(QK^T) V + g softmax(positions) V with one learned g per head.

    Both softmaxes sum to one, so their mixture needs no renormalisation; the second does not depend on the image.
    """

    offsets: Tensor

    def __init__(self, width: int, heads: int, grid: Size) -> None:
        super().__init__(width, heads)
        self.position = OffsetScores(heads)
        self.gate = nn.Parameter(torch.ones(heads))
        rows, columns = sides(grid)
        y, x = torch.meshgrid(torch.arange(rows).float(), torch.arange(columns).float(), indexing="ij")
        dx = x.flatten()[None, :] - x.flatten()[:, None]
        dy = y.flatten()[None, :] - y.flatten()[:, None]
        self.register_buffer("offsets", torch.stack([dx, dy, dx**2 + dy**2], dim=-1), persistent=False)

    def start_like_convolution(self) -> None:
        """Start like a convolution: V is the identity, each of k² heads looks at one cell of a k x k area."""
        kernel = math.isqrt(self.heads)
        with torch.no_grad():
            nn.init.eye_(self.value.weight)
            for head in range(kernel**2):
                row, column = divmod(head, kernel)
                centre_x, centre_y = column - (kernel - 1) / 2, row - (kernel - 1) / 2
                self.position.weight[head] = torch.tensor([2.0 * centre_x, 2.0 * centre_y, -1.0])

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        g = torch.sigmoid(self.gate).view(-1, 1, 1).to(v.dtype)
        content = functional.scaled_dot_product_attention(q, k, v)
        return (1 - g) * content + g * torch.einsum("hnm,bhmd->bhnd", self.neighbours().to(v.dtype), v)

    def neighbours(self) -> Tensor:
        """softmax(positions): where each head looks whatever the image."""
        return self.position(self.offsets).softmax(dim=-1)  # (heads, N, N)


class ExternalAttention(SelfAttention):
    """LVT's attention: A = softmax(Q K / sqrt(d) + bias) with keys K that are learned, not made of the image.

    The bias of each head depends on the offset from one token to another only.
    """

    offset: Tensor

    def __init__(self, width: int, heads: int, grid: tuple[int, int]) -> None:
        super().__init__(width, heads)
        del self.query_key
        rows, columns = grid
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Parameter(nn.init.trunc_normal_(torch.empty(heads, rows * columns, width // heads), std=0.02))
        self.bias = nn.Parameter(torch.zeros(heads, (2 * rows - 1) * (2 * columns - 1)))
        row, column = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).T  # (N,) each
        down, right = row[None] - row[:, None] + rows - 1, column[None] - column[:, None] + columns - 1  # (N, N)
        self.register_buffer("offset", down * (2 * columns - 1) + right, persistent=False)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = self.split(self.query(x))
        return q, self.keys.to(q.dtype).expand(x.shape[0], -1, -1, -1), self.split(self.value(x))

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bias = self.bias[:, self.offset].to(q.dtype)  # (heads, N, N)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


class DropPath(nn.Module):
    """Stochastic depth: drops a residual branch for a random share of the images.

    The rate is a tensor so that blocks with different rates share one compiled graph.
    """

    rate: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.register_buffer("rate", torch.tensor(rate), persistent=False)

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training:
            return branch
        return branch * self.kept(len(branch)).to(branch.dtype)

    def kept(self, images: int, branches: int = 1) -> Tensor:
        """Random factors of residual branches, 0 or 1 / (1 - rate), drawn branch by branch: (images, branches, 1)."""
        draws = torch.cat([uniform(images, 1, 1, device=self.rate.device) for _ in range(branches)], dim=1)
        return (draws >= self.rate) / (1 - self.rate)


class Block(nn.Module):
    """x' = x + SA(norm(x)); x'' = x' + MLP(norm(x'))."""

    compiled = ("forward",)

    def __init__(self, attention: SelfAttention, width: int, mlp_ratio: float, drop_path: float) -> None:
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.norm_attention = nn.LayerNorm(width)
        self.attention = attention
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        return self.add(x, self.attention(self.norm_attention(x)))

    def observe(self, x: Tensor, what: Observed) -> tuple[Tensor, Tensor]:
        """`forward`, and the scores or outputs of its attention."""
        attended, seen = self.attention.observe(self.norm_attention(x), what)
        return self.add(x, attended), seen

    def add(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.drop_path(attended)
        return x + self.drop_path(self.mlp(self.norm_mlp(x)))


class Encoder(nn.Module):
    """b(x; Ψ): an image in, N patch tokens of width D out."""

    purposes: ClassVar[dict[str, str]] = {"": "encoder: turns an image into features"}

    compiled = ("embed",)

    def __init__(
        self,
        config: EncoderConfig,
        image_size: Size,
        gpsa: type[GatedPositionalSelfAttention] = GatedPositionalSelfAttention,
    ) -> None:
        super().__init__()
        assert config.kind not in ("resnet18", "pretrained"), "which are not made of these blocks"
        kinds = {"convit": gpsa, "external": ExternalAttention}
        self.config, self.grid, self.tokens = config, config.grid(image_size), config.tokens(image_size)
        self.patches = nn.Conv2d(3, config.width, kernel_size=config.patch, stride=config.patch)
        self.position = nn.Parameter(torch.zeros(1, self.tokens, config.width))
        self.blocks = nn.ModuleList(
            Block(
                kinds[config.kind](config.width, config.heads, self.grid)
                if config.kind in kinds
                else SelfAttention(config.width, config.heads),
                config.width,
                config.mlp_ratio,
                rate,
            )
            for rate in config.drop_rates()[:-1]
        )
        initialise(self)
        nn.init.trunc_normal_(self.position, std=0.02)
        for module in self.modules():
            if isinstance(module, GatedPositionalSelfAttention):
                module.start_like_convolution()

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images)
        for block in self.blocks:
            x = block(x)
        return x

    def observe(self, images: Tensor, what: Observed) -> tuple[Tensor, list[Tensor]]:
        """`forward` by the readable path, and the scores or outputs of each block's attention (for A-D)."""
        x, seen = self.embed(images), []
        for block in self.blocks:
            assert isinstance(block, Block)
            x, found = block.observe(x, what)
            seen.append(found)
        return x, seen

    def embed(self, images: Tensor) -> Tensor:
        """Patch tokens plus position embedding (B, N, D); the convolution is one matrix product, without overlap."""
        patch = self.config.patch
        grid = images.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # (B, 3, rows, patch, columns, patch)
        windows = grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, N, 3 patch²)
        return functional.linear(windows, self.patches.weight.flatten(1), self.patches.bias) + self.position

    def norms(self) -> Iterator[nn.Module]:
        for block in self.blocks:
            assert isinstance(block, Block)
            yield block.norm_attention
            yield block.norm_mlp


def resized_position(position: Tensor, grid: tuple[int, int]) -> Tensor:
    """A position embedding (1, rows, columns, D) resampled to another grid, bicubic: (1, N, D)."""
    if position.shape[1:3] == grid:
        return position.flatten(1, 2)
    field = position.permute(0, 3, 1, 2).float()  # (1, D, rows, columns)
    return functional.interpolate(field, grid, mode="bicubic", align_corners=False).flatten(2).transpose(1, 2)


def initialise(module: nn.Module) -> None:
    """Truncated normal weights and zero biases for every linear layer, as vision transformers use."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
