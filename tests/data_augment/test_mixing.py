"""CutMix: which pixels and how much of a label come from another image."""

import pytest
import torch

from gcab.config import resolve
from gcab.data.augment import Augment, AugmentConfig
from gcab.data.mixing import Boxes, Mixed, draw_boxes, inside, mix
from gcab.errors import GcabError
from gcab.methods.method import binary_cross_entropy

CHANNELS = (0.5, 0.5, 0.5)


def random(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_every_pixel_is_the_images_own_or_its_partners_at_the_same_place() -> None:
    images, labels = torch.rand(8, 3, 10, 6, generator=random()), torch.arange(8)
    mixed, partners = mix(images, labels, draw_boxes(8, 1.0, random(2)))
    own = (mixed == images).all(dim=1)
    other = (mixed == images[partners.labels]).all(dim=1)
    assert (own ^ other).all()
    assert torch.equal(partners.labels, (labels + 4) % 8)
    assert torch.allclose(partners.shares, own.float().mean(dim=(1, 2)))


def test_a_box_is_a_square_around_its_point_cut_at_the_edges() -> None:
    boxes = Boxes(
        torch.tensor([0.25, 0.25, 1.0, 0.0]), torch.tensor([0.5, 0.0, 0.5, 0.5]), torch.tensor([0.5, 0.0, 0.5, 0.5])
    )
    middle, corner, whole, none = inside(boxes, 8, 8)
    assert middle[2:6, 2:6].all()
    assert middle.sum() == 16
    assert corner[:2, :2].all()
    assert corner.sum() == 4
    assert whole.all()
    assert not none.any()


def test_as_many_images_are_mixed_as_asked_for_and_shares_are_uniform() -> None:
    boxes = draw_boxes(20_000, 0.3, random())
    chosen = boxes.area[boxes.area > 0]
    assert abs(len(chosen) / 20_000 - 0.3) < 0.02
    assert abs(chosen.mean() - 0.5) < 0.02
    assert abs(chosen.var() - 1 / 12) < 0.005


def test_nothing_is_drawn_or_mixed_unless_asked_for() -> None:
    images, generator = torch.rand(4, 3, 8, 8), random()
    before = generator.get_state()
    found, mixed = Augment(AugmentConfig(), CHANNELS, CHANNELS).mix(images, torch.arange(4), generator)
    assert found is images
    assert mixed is None
    assert torch.equal(generator.get_state(), before)


def test_the_loss_is_that_of_both_labels_each_at_its_share() -> None:
    logits, labels, others = (
        torch.randn(5, 3, generator=random()),
        torch.tensor([4, 5, 6, 4, 5]),
        torch.tensor([6, 6, 4, 4, 5]),
    )
    shares = torch.tensor([1.0, 0.0, 0.25, 0.5, 0.9])
    found = binary_cross_entropy(logits, labels, first=4, mixed=Mixed(others, shares))
    expected = [
        share * binary_cross_entropy(row[None], label[None], 4)
        + (1 - share) * binary_cross_entropy(row[None], other[None], 4)
        for row, label, other, share in zip(logits, labels, others, shares, strict=True)
    ]
    assert torch.allclose(found, torch.stack(expected).mean())


def test_methods_that_do_not_learn_from_mixed_images_refuse_them() -> None:
    assert resolve("digits/5", "gcab", changes={"augment.cutmix": 0.5}).augment.cutmix == 0.5
    with pytest.raises(GcabError, match="er does not learn from mixed images"):
        resolve("digits/5", "er", changes={"augment.cutmix": 0.5})
    with pytest.raises(GcabError, match=r"augment\.cutmix is 2"):
        resolve("digits/5", "gcab", changes={"augment.cutmix": 2})
