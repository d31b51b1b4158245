"""A frozen encoder and an exact linear discriminant: the method for pretrained encoders.

Not in the paper. As RanPAC (McDonnell et al., 2023) without its first-session adaptation: features of an encoder that
never changes, random projections of them if so wished, and a linear discriminant out of sums
(`gcab/model/discriminant.py`). With `encoder.kind pretrained` the encoder is one that others trained; any other has
random weights from the seed, or those of a run (`encoder.weights`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gcab.data.augment import normalise
from gcab.data.tasks import Setting
from gcab.errors import GcabError
from gcab.fast.encoders import make_encoder
from gcab.methods.card import Card, Compass
from gcab.methods.eye import Eye
from gcab.methods.method import Method, pooled
from gcab.model.eye import EyeClassifier, FeatureExtractor, in_full_precision
from gcab.pretrained.encoder import PretrainedEncoder

LEVELS = 128  # quantisation levels of a feature from 0 to its root mean square
SEED = 0  # of P, the same for everybody: sums of different models add up
MOST = 16384  # random projections


@dataclass(frozen=True)
class FrozenOptions:
    """What is made of the encoder's features, and how their sums are kept."""

    features: int = 0  # random projections beside the encoder's own features: for thousands of images
    forgettable: bool = False  # sums of every class by itself, so that one can be forgotten without its images

    def __post_init__(self) -> None:
        if not 0 <= self.features <= MOST:
            raise GcabError(f"options.features is {self.features}: give a number of projections from 0 to {MOST}.")


class FrozenExtractor(FeatureExtractor):
    """Features u and max(0, P u / sqrt(D)), quantised to integers in steps of 1 / LEVELS so that sums are exact."""

    purposes: ClassVar[dict[str, str]] = {"signs": "random projection of the encoder's features"}
    at_once: ClassVar[int] = 16  # images per report of progress: few, as each takes long
    encoder: Any
    signs: Tensor

    def __init__(self, setting: Setting, projections: int) -> None:
        super().__init__()
        self.mean, self.std, self.mirrored = setting.mean, setting.std, setting.mirrors
        self.encoder = make_encoder(setting.encoder, setting.image_size, setting.weights).requires_grad_(False)
        width: int = getattr(self.encoder, "summary_width", setting.encoder.width)
        self.features = width + projections
        random = torch.Generator().manual_seed(SEED)
        self.register_buffer("signs", torch.randint(2, (projections, width), generator=random).to(torch.int8) * 2 - 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.unrounded(images).round()

    def unrounded(self, images: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and images.device.type == "cpu" and len(images) > 1:
            # One image at a time, so that features do not depend on the batch and are the same in any lesson.
            return torch.cat([self.unrounded(image) for image in images.split(1)])
        with in_full_precision(images.device):
            ready = normalise(images.byte(), self.mean, self.std)
            looks = (ready, ready.flip(3)) if self.mirrored else (ready,)
            return self.scaled(torch.stack([self.summary(look).float() for look in looks]).mean(dim=0))

    def scaled(self, f: Tensor) -> Tensor:
        """The normalised f and its random projections, before rounding."""
        u = f / f.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-9)
        projected = (u @ self.signs.float().T).relu() / u.shape[1] ** 0.5
        return torch.cat([u, projected], dim=1) * LEVELS

    def summary(self, images: Tensor) -> Tensor:
        """f: one vector for each normalised image."""
        if isinstance(self.encoder, PretrainedEncoder):
            return self.encoder.summarised(images)
        return pooled(self.encoder(images))


class Frozen(Eye):
    """Sums of the features of a frozen encoder, of their products and of the images of each class."""

    Options: ClassVar[type[Any]] = FrozenOptions
    summary = "a frozen, best a pretrained encoder with an exact linear discriminant; stores no image"
    card: ClassVar[Card] = Card(
        source="RanPAC (McDonnell et al., NeurIPS 2023)",
        stores="sums over images: of features, of their products, of each class",
        differs="no adaptation in the first task; no random projections unless `options.features` asks for them",
        compass=Compass(federated="unsupervised", online="supervised"),
    )
    few: ClassVar[int] = 2

    def __init__(self, setting: Setting, options: FrozenOptions) -> None:
        Method.__init__(self, setting, options)
        self.eye = EyeClassifier(FrozenExtractor(setting, options.features), options.forgettable)

    @classmethod
    def sees(cls, options: Any) -> bool:  # noqa: ARG003
        """Its encoder was trained, mostly with mirror images, and encoding these, too, would take twice as long."""
        return False

    @property
    def extractor(self) -> FrozenExtractor:
        """The feature extractor, which never changes."""
        assert isinstance(self.eye.eye, FrozenExtractor)
        return self.eye.eye

    def merge(self, other: Method, places: Sequence[int]) -> None:
        if isinstance(other, Frozen):
            own, its = self.extractor.encoder.state_dict(), other.extractor.encoder.state_dict()
            if own.keys() != its.keys() or not all(torch.equal(own[name], its[name].to(own[name])) for name in own):
                raise GcabError("these models do not add up: they have different encoders.")
        super().merge(other, places)

    def features(self, images: Tensor) -> Tensor:
        return self.extractor.encoder(images)
