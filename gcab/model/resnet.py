"""ResNet-18 with a 3x3 stem and no max-pool, which most of the paper's other rows use (He et al. 2016; Mammoth)."""

from typing import ClassVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional

from gcab.model.encoder import EncoderConfig
from gcab.parallel.ranks import world
from gcab.sizes import Size

STAGES = 4  # of two blocks each; all but the first halve the side and double the width


class BatchNorm(nn.BatchNorm2d):
    """Normalises by the statistics of the global batch, so that several processes compute what one does."""

    def forward(self, x: Tensor) -> Tensor:
        if world() == 1 or not self.training:
            return super().forward(x)
        whole = x.float()
        moments = torch.stack([whole.mean(dim=(0, 2, 3)), whole.square().mean(dim=(0, 2, 3))])
        mean, square = all_reduce(moments, distributed.ReduceOp.SUM) / world()
        variance = square - mean.square()
        self.follow(mean.detach(), variance.detach(), x.numel() // x.shape[1] * world())
        scaled = (whole - mean[:, None, None]) * (variance + self.eps).rsqrt()[:, None, None]
        return (scaled * self.weight[:, None, None] + self.bias[:, None, None]).to(x.dtype)

    def follow(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Update the running statistics as `nn.BatchNorm2d` does."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        share = self.momentum or 0.0
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance * count / max(1, count - 1), share)
        self.num_batches_tracked.add_(1)


class BasicBlock(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x)))))), with a 1x1 convolution of x where the shape changes."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.norm_first = BatchNorm(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_second = BatchNorm(width)
        changes = stride > 1 or before != width
        self.shortcut = (
            nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), BatchNorm(width))
            if changes
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm_first(self.first(x)))
        return functional.relu(self.norm_second(self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """An image in, the last feature map out as N tokens of width D, whose mean is what heads read."""

    purposes: ClassVar[dict[str, str]] = {"": "encoder: turns an image into features"}

    def __init__(self, config: EncoderConfig, image_size: Size) -> None:
        super().__init__()
        self.config, self.grid, self.tokens = config, config.grid(image_size), config.tokens(image_size)
        widths = [config.width // 2 ** (STAGES - 1 - stage) for stage in range(STAGES)]
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, padding=1, bias=False), BatchNorm(widths[0]), nn.ReLU())
        before, blocks = widths[0], []
        for stage, width in enumerate(widths):
            blocks += [BasicBlock(before, width, stride=2 if stage else 1), BasicBlock(width, width, stride=1)]
            before = width
        self.blocks = nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(self.stem(images)).flatten(2).mT  # (B, N, D)
