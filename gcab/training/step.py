"""One training step: augment, forward, backward, gate, clip, update."""

import torch
from torch import Tensor

from gcab.data.augment import Augment
from gcab.methods.method import Batch, Method, Progress


class Step:
    """The same step for every method; it never waits for the device."""

    def __init__(
        self, method: Method, optimiser: torch.optim.Optimizer, augment: Augment, clip: float, bfloat16: bool
    ) -> None:
        self.method, self.optimiser, self.augment = method, optimiser, augment
        self.clip, self.bfloat16 = clip, bfloat16

    def __call__(
        self, images: Tensor, labels: Tensor, progress: Progress, random: torch.Generator
    ) -> dict[str, Tensor]:
        """Returns the loss terms, detached."""
        replayed = self.method.replay(len(labels))
        if replayed is not None:
            images, labels = torch.cat([images, replayed.images]), torch.cat([labels, replayed.labels])
        batch = Batch(self.augment(images, random), labels)
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.bfloat16):
            terms = self.method.loss(batch, progress)
        torch.stack([term.float() for term in terms.values()]).sum().backward()
        self.method.before_step(progress)
        if self.clip > 0:
            learning = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
            torch.nn.utils.clip_grad_norm_(learning, self.clip)
        self.optimiser.step()
        self.method.after_step(progress)
        return {name: term.detach().float() for name, term in terms.items()}
