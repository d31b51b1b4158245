"""Whether an image and its mirror image count as the same: the photos of a model's first lesson decide.

In a leave-one-out trial every photo is classified by the others, once from its features and once from the mean of its
own and its mirror image's. Squared errors are compared, as accuracies of few photos tell less.
What was measured is in `docs/decisions.md`.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gcab.classifier.lesson import Lesson
from gcab.data.tasks import TaskImages
from gcab.fast.eye import FastEye
from gcab.model.discriminant import ridge

FEATURES = 1024  # of the eye: a quarter of the usual ones decide the same in a quarter of the time
MOST = 1000  # photos in the trial
SURE = 2.0  # standard errors by which all photos together have to gain, and that no class may lose
ALARMING = 2.5  # standard errors lost that are worth a warning: among many classes, one loses two by chance

CHOSEN = (
    "more photos are named right if an image and its mirror image count as the same: from now on they do, and nothing "
    "that differs by left and right alone can be told apart (--set augment.flip=false: they do not)"
)
BLIND = (
    "left and right seem to matter in these photos, but to this model an image and its mirror image are the same since "
    "its first lesson: a new one with --set augment.flip=false would tell them apart"
)


class Trial(NamedTuple):
    """The effect of counting mirror images as the same."""

    right: int  # photos named right, more than without
    gain: float  # by which the error falls, in standard errors
    worst: float  # the same of the class that gains least

    @property
    def helps(self) -> bool:
        return self.right > 0 and self.gain >= SURE and self.worst > -SURE

    @property
    def harms(self) -> bool:
        return min(self.gain, self.worst) <= -ALARMING


def note_on_mirrors(lesson: Lesson, chosen: bool) -> str | None:
    """A note for the user about mirror images, if any; `chosen`: whether these photos have decided about them."""
    method = lesson.method
    if not method.setting.mirrors or not method.sees(method.options):
        return None
    if chosen:
        return CHOSEN
    return BLIND if try_mirrors(lesson.material.train, lesson.device).harms else None


@torch.no_grad()
def try_mirrors(photos: TaskImages, device: torch.device) -> Trial:
    """Classify some photos of every class with and without their mirror images."""
    labels = photos.labels.unique(return_inverse=True)[1]
    some = TaskImages(photos.images, labels).some_of_each(MOST // (int(labels.max()) + 1))
    eye = FastEye(FEATURES).to(device)
    own, mirrored = (eye(images.to(eye.device)).cpu().double() for images in (some.images, some.images.flip(3)))
    y = functional.one_hot(some.labels).double()
    once, twice = (leave_one_out(features, y) for features in (own, (own + mirrored) / 2))
    gain = (once - y).square().sum(dim=1) - (twice - y).square().sum(dim=1)
    right, before = (int((said.argmax(dim=1) == some.labels).sum()) for said in (twice, once))
    classes = (gain[some.labels == label] for label in some.labels.unique())
    return Trial(right - before, in_standard_errors(gain), min(map(in_standard_errors, classes)))


def leave_one_out(features: Tensor, y: Tensor) -> Tensor:
    """Leave-one-out predictions of a ridge regression towards y (n, classes): y - M y / diag M, M = (K + n r)⁻¹."""
    n = len(y)
    x = features - features.mean(dim=0)
    x /= x.square().mean(dim=0).sqrt().clamp_min(1e-9)
    kernel = x @ x.T + x.numel()  # a constant feature, which costs nothing to use, stands for the mean
    kernel.diagonal().add_(n * ridge(features.shape[1], n))
    inverse = torch.linalg.inv(kernel)
    return y - inverse @ y / inverse.diagonal()[:, None]


def in_standard_errors(gains: Tensor) -> float:
    """A sum of gains and losses in units of its standard error."""
    return float(gains.sum() / gains.square().sum().clamp_min(1e-12).sqrt())
