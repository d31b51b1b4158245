"""The whole network of the paper: encode -> cascade -> decode -> classify (Eq. projection)."""

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from gcab.model.class_attention import ClassAttention
from gcab.model.encoder import Encoder, EncoderConfig, initialise
from gcab.model.gates import Gate
from gcab.model.heads import GrowingHead, Head
from gcab.model.options import NetworkOptions
from gcab.model.projectors import DriftCascade, make_projector
from gcab.model.resnet import ResNet

Masks = tuple[Tensor | None, Tensor | None]  # m_i over the width, m_2 over the MLP's hidden units


def decoder_block(encoder: EncoderConfig, options: NetworkOptions) -> ClassAttention:
    """The class-attention block that goes with an encoder."""
    block = ClassAttention(encoder.width, encoder.heads, encoder.mlp_ratio, options, encoder.drop_rates()[-1])
    initialise(block)
    return block


class GatedNetwork(nn.Module):
    """ŷ_s = c^s(f_s(p^{s+1}(... p^t(b^t(x))))) for every task s learned so far."""

    purposes: ClassVar[dict[str, str]] = {
        "tokens": "class token: what the decoder looks for, for {this}",
        "_extra_state": "number of tasks learned",
    }

    def __init__(self, encoder: Encoder, options: NetworkOptions) -> None:
        super().__init__()
        config = encoder.config
        self.options, self.width, self.tokens_per_image = options, config.width, encoder.tokens
        hidden = int(config.width * config.mlp_ratio)
        self.encoder = encoder
        self.block = decoder_block(config, options)
        self.gate_in = Gate(config.width, options.gate_mean, options.gate_std, options.sharpest)
        self.gate_hidden = Gate(hidden, options.gate_mean, options.gate_std, options.sharpest)
        self.tokens = nn.ParameterList()  # θ, one or one per task
        self.heads = nn.ModuleList()  # c^1 ... c^t
        self.classes: list[int] = []  # of each head
        self.cascade = DriftCascade()  # p^2 ... p^t
        self.finished = 0  # tasks whose training has ended

    @property
    def tasks(self) -> int:
        return len(self.heads)

    def get_extra_state(self) -> Tensor:
        """`finished` is part of the state_dict, as a tensor because safetensors stores nothing else."""
        return torch.tensor(self.finished, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        self.finished = int(state)

    def grow(self, classes: int, projector: bool) -> None:
        """Add the parameters of a new task and freeze those of finished tasks."""
        device = self.gate_in.used.device
        self.heads.requires_grad_(False)
        head = Head(self.width, classes, self.options.head_norm)
        if self.options.head_init == "truncated":
            initialise(head)
        self.heads.append(head.to(device))
        self.classes.append(classes)
        if self.options.gates:
            self.gate_in.grow()
            self.gate_hidden.grow()
        if self.options.class_token == "per_task" or not self.tokens:
            self.tokens.requires_grad_(False)
            token = nn.init.trunc_normal_(torch.empty(self.width), std=0.02)
            self.tokens.append(nn.Parameter(token.to(device)))
        if self.tasks > 1:
            if projector:
                self.cascade.grow(make_projector(self.options.projector, self.tokens_per_image, self.width).to(device))
            if self.options.freeze_norms:
                for norm in (*self.encoder.norms(), *self.block.norms()):
                    norm.requires_grad_(False)

    def drop(self, label: int) -> None:
        """Remove a class from its head; the units that its task's gates have claimed stay claimed."""
        task, row = self.place(label)
        cast(Head, self.heads[task]).drop(row)
        self.classes[task] -= 1

    def place(self, label: int) -> tuple[int, int]:
        """The index of a class's head, and its row in that head."""
        ends = torch.tensor(self.classes).cumsum(dim=0)
        task = int((ends <= label).sum())
        return task, label - int(ends[task]) + self.classes[task]

    @torch.no_grad()
    def join(self, label: int, other: int) -> bool:
        """Merge two classes; true if one head has both: the logit is then their mean, else that of the first.

        Two binary classifiers that disagree on images of either class average to "perhaps", and on all other images to
        "no", which still separates the two from the rest; heads of different tasks read different features.
        """
        (task, row), (its_task, its_row) = self.place(label), self.place(other)
        if task == its_task:
            for held in cast(Head, self.heads[task]).linear.parameters():
                held[row] = (held[row] + held[its_row]) / 2
        self.drop(other)
        return task == its_task

    def spaces(self, features: Tensor, compensate: bool) -> list[Tensor]:
        """The features in the space of each task 1..t, mapped back by the cascade if `compensate`."""
        if compensate and len(self.cascade.projectors):
            return self.cascade(features)
        return [features] * self.tasks

    def masks(self, task: int) -> Masks:
        """The masks of a task outside its own training: hard, or soft at s_max."""
        if not self.options.gates:
            return None, None
        ended = {"never": 0, "next": self.tasks - 1, "end": self.finished}[self.options.binarise]
        if task < ended:
            return self.gate_in.hard(task), self.gate_hidden.hard(task)
        return self.gate_in.sharp(task), self.gate_hidden.sharp(task)

    def decode(self, task: int, features: Tensor, masks: Masks) -> Tensor:
        """f_s: the class-attention block under the gates of task s."""
        token = self.tokens[min(task, len(self.tokens) - 1)]
        return self.block(token, features, *masks)

    def classify(self, task: int, feature: Tensor, masks: Masks) -> Tensor:
        """c^s of f_s (of f_s ⊙ m_1 in the text)."""
        if self.options.mask_classifier and masks[0] is not None:
            feature = feature * masks[0]
        return self.heads[task](feature)

    def logits(self, spaces: list[Tensor]) -> Tensor:
        """One pass per task, logits of all heads concatenated."""
        passes = [(task, features, self.masks(task)) for task, features in enumerate(spaces)]
        return torch.cat([self.classify(s, self.decode(s, b, m), m) for s, b, m in passes], dim=1)

    @torch.no_grad()
    def finish(self) -> None:
        """The newest task's training has ended: its gates join m^{<t}."""
        self.finished += 1
        if self.options.gates:
            task = self.tasks - 1
            for gate in (self.gate_in, self.gate_hidden):
                gate.claim(gate.sharp(task) if self.options.binarise == "never" else gate.hard(task))

    @torch.no_grad()
    def abstain(self, logit: float) -> None:
        """Make the newest task's untrained pass give every image this logit and claim no unit of the decoder."""
        head = cast(Head, self.heads[-1]).linear
        head.weight.zero_()
        head.bias.fill_(logit)
        if self.options.gates:
            for gate in (self.gate_in, self.gate_hidden):
                gate.shut(self.tasks - 1)

    def updatable(self) -> list[tuple[Tensor, Tensor]]:
        """Every shared decoder weight with the mask M^{<t} of its updates."""
        if not self.options.gates:
            return []
        masks = self.block.updatable(self.gate_in.used, self.gate_hidden.used)
        if self.options.class_token == "shared":
            masks.append((self.tokens[0], 1 - self.gate_in.used))
        return masks


class PlainNetwork(nn.Module):
    """The same architecture without gates, cascade or passes per task: fine-tuning, joint training, replay.

    A ResNet has no class token: its heads read the mean of its last feature map, as published.
    """

    purposes: ClassVar[dict[str, str]] = {"token": "class token: what the decoder looks for"}

    def __init__(self, encoder: Encoder | ResNet) -> None:
        super().__init__()
        self.width, self.pools = encoder.config.width, isinstance(encoder, ResNet)
        self.encoder = encoder
        if not self.pools:
            self.block = decoder_block(encoder.config, NetworkOptions())
            self.token = nn.Parameter(nn.init.trunc_normal_(torch.empty(self.width), std=0.02))
        self.head = GrowingHead(self.width, normalise=not self.pools)

    def grow(self, classes: int) -> None:
        self.head.grow(classes)
        self.head.to(next(self.encoder.parameters()).device)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.feature(images))

    def feature(self, images: Tensor) -> Tensor:
        """f (B, D), which the heads read."""
        return self.decode(self.encoder(images))

    def decode(self, tokens: Tensor) -> Tensor:
        """f (B, D) from the encoder's tokens (B, N, D)."""
        return tokens.mean(dim=1) if self.pools else self.block(self.token, tokens)
