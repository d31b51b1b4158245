"""The eye: features of whole numbers, sums that forget nothing, and the textbook's linear discriminant out of them."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from gcab.errors import GcabError
from gcab.fast.eye import FastEye
from gcab.model.discriminant import ExactDiscriminant, Sums
from gcab.model.discriminant import ridge as ridge_for
from gcab.model.eye import (
    BLOCK,
    CELLS,
    FLAT,
    LEVELS,
    SHARES,
    SHARP_SIDE,
    SIDE,
    STEPS,
    THRESHOLD,
    VERSION,
    Eye,
    EyeClassifier,
    add_products,
    features_for,
    filters,
)
from gcab.model.triangle import symmetric

FEATURES, SMALL = 64, 32  # of 8 and of 4 filters, half of them of 6 x 6 pixels, a quarter of 4 x 4 and of 9 x 9


def random_images(count: int, shape: tuple[int, int, int] = (3, 32, 32), seed: int = 1) -> Tensor:
    """Bytes with flat and rough places."""
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, *shape), dtype=torch.uint8, generator=random)
    images[:, :, : shape[1] // 3] //= 64
    return images


def naive_features(image: np.ndarray, features: int) -> list[float]:
    """From (3, side, side) pixels, patch after patch, in double precision."""
    found, side = [], image.shape[-1]
    for size, share in SHARES.items():
        count, bank = share * features // 32, filters()[size]
        places, half = side - size + 1, (side - size + 1) // CELLS
        window = places - half * (CELLS - 1)
        answers = np.zeros((2, count, places, places))
        for y in range(places):
            for x in range(places):
                patch = image[:, y : y + size, x : x + size].astype(np.float64)
                deviation = math.sqrt(patch.var() + FLAT**2)
                for k in range(count):
                    z = float((patch * bank.kernels[k].numpy()).sum()) / deviation * float(bank.scales[k])
                    answers[:, k, y, x] = [np.rint(max(0.0, sign * z - THRESHOLD) * STEPS) for sign in (1, -1)]
        for sign in range(2):
            for k in range(count):
                for top in range(CELLS):
                    for left in range(CELLS):
                        rows = slice(top * half, top * half + window)
                        columns = slice(left * half, left * half + window)
                        found.append(answers[sign, k, rows, columns].sum() / (STEPS * window**2))
    return [math.sqrt(answer) * LEVELS for answer in found]


@pytest.mark.repeats
@pytest.mark.parametrize("side", [16, SIDE, SHARP_SIDE])
def test_features_are_those_of_a_naive_implementation(side: int) -> None:
    """To one level, where single precision rounds an answer to the other side; hardly any differ at all."""
    images = random_images(2, (3, side, side))
    found = Eye(SMALL, side=max(side, SIDE))(images)
    expected = torch.tensor([naive_features(image.numpy(), SMALL) for image in images], dtype=torch.float64)
    assert found.shape == (2, SMALL)
    assert float((found - expected).abs().max()) < 0.6
    assert float(found.std()) > 1, "they say something"


def test_a_sharp_eye_sees_what_the_usual_one_averages_away() -> None:
    fine = torch.zeros(2, 3, 64, 64, dtype=torch.uint8)
    fine[0, :, ::2, ::2], fine[0, :, 1::2, 1::2], fine[1] = 200, 200, 100  # a fine chequerboard, and as much light
    usual, sharp = Eye(SMALL)(fine), Eye(SMALL, side=SHARP_SIDE)(fine)
    assert torch.equal(usual[0], usual[1])
    assert not torch.equal(sharp[0], sharp[1])
    with pytest.raises(GcabError, match="give 32 or 64"):
        Eye(SMALL, side=48)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("tones", [2, 16])
def test_tones_are_the_shares_of_the_pixels_beside_what_the_filters_see(tones: int, mirrored: bool) -> None:
    images = random_images(4)
    found = Eye(SMALL, mirrored, tones=tones)(images)
    assert torch.equal(found[:, :SMALL], Eye(SMALL, mirrored)(images))
    centres = np.linspace(0, 255, tones)
    near = np.maximum(0, 1 - np.abs(images.numpy()[..., None] - centres) / centres[1])  # (B, 3, 32, 32, tones)
    shares = near.mean(axis=(2, 3)).transpose(0, 2, 1).reshape(4, -1)
    assert np.allclose(shares.sum(axis=1), 3), "each channel's add up to 1"
    assert np.abs(found[:, SMALL:].numpy() - np.sqrt(shares) * LEVELS).max() <= 0.5 + 1e-4
    assert torch.equal(FastEye(SMALL, mirrored, tones=tones)(images), found)


def test_how_bright_an_image_is_only_tones_tell() -> None:
    flat = torch.tensor([40, 90, 140, 190], dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 32, 32)
    filtered, toned = Eye(SMALL)(flat), Eye(SMALL, tones=16)(flat)
    assert not filtered.any()
    assert len(toned.unique(dim=0)) == 4
    assert torch.equal(toned, Eye(SMALL, tones=16)(flat[:, :1])), "grey is three equal channels"
    for tones in (1, 8):
        with pytest.raises(GcabError, match=f"cannot have {tones} tones: give 0, 2, 4, 6, 16"):
            Eye(SMALL, tones=tones)


@pytest.mark.parametrize("side", [SIDE, SHARP_SIDE])
def test_features_are_whole_numbers_and_do_not_depend_on_the_batch(side: int) -> None:
    eye, images = Eye(FEATURES, side=side), random_images(7)
    together = eye(images)
    assert torch.equal(together, together.round())
    assert float(together.min()) >= 0
    assert torch.equal(torch.cat([eye(image[None]) for image in images]), together)
    order = torch.tensor([3, 1, 6, 0, 5, 2, 4])
    assert torch.equal(eye(images[order]), together[order])
    assert torch.equal(eye(images.double()), together)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(eye(images), together), "no precision of the caller reaches it"


@pytest.mark.parametrize(
    "shape",
    [(1, 8, 8), (3, 8, 8), (4, 8, 8), (1, 20, 30), (3, 20, 30), (4, 20, 30), (1, 64, 64), (3, 64, 64), (6, 9, 64)],
)
def test_images_of_any_shape_and_number_of_channels_are_seen(shape: tuple[int, int, int]) -> None:
    found = Eye(FEATURES)(random_images(3, shape))
    assert found.shape == (3, FEATURES)
    assert bool(found.isfinite().all())
    assert float(found.std(dim=0).max()) > 0, "different images look different"


def test_grey_is_seen_as_three_equal_channels_and_further_channels_in_groups_of_three() -> None:
    eye, grey, colour = Eye(FEATURES), random_images(2, (1, 32, 32)), random_images(2)
    assert torch.equal(eye(grey), eye(grey.repeat(1, 3, 1, 1)))
    assert torch.equal(eye(torch.cat([colour, colour], dim=1)), eye(colour))
    four = torch.cat([colour, grey], dim=1)
    assert torch.equal(eye(four), eye(torch.cat([colour, grey.repeat(1, 3, 1, 1)], dim=1)))


def test_brightness_and_flat_images_say_nothing() -> None:
    eye, images = Eye(FEATURES), random_images(2) // 2
    assert torch.equal(eye(images), eye(images + 100))
    assert not eye(torch.full((1, 3, 32, 32), 77)).any()


def test_more_features_begin_with_the_filters_of_fewer() -> None:
    images = random_images(2)
    few, many = Eye(SMALL)(images), Eye(2 * SMALL)(images)
    own = {tuple(column.tolist()) for column in few.T}
    assert own <= {tuple(column.tolist()) for column in many.T}


@pytest.mark.parametrize(("image_size", "expected"), [(8, 1024), (16, 1024), (17, 4096), (32, 4096), (224, 4096)])
def test_small_images_have_a_quarter_of_the_features(image_size: int, expected: int) -> None:
    assert features_for(image_size, 4096) == expected
    assert features_for(8, 32) == 32, "but as many as there can be at least"


@pytest.mark.parametrize("features", [0, -32, 33, 10**6])
def test_a_number_of_features_that_cannot_be_is_refused(features: int) -> None:
    with pytest.raises(GcabError, match=rf"cannot have {features} features: give a multiple of 32 up to"):
        Eye(features)


LABELS = torch.arange(30) % 3


def taught(images: Tensor, labels: Tensor, parts: Sequence[Tensor], per_class: bool = False) -> EyeClassifier:
    """An eye that saw the images at these positions, part after part."""
    classifier = EyeClassifier(Eye(FEATURES), per_class=per_class)
    classifier.ridge.grow(3)
    for part in parts:
        classifier.ridge = classifier.taught(images[part], labels[part])
    return classifier


def state_of(ridge: ExactDiscriminant) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in ridge.state_dict().items()}


def same(one: ExactDiscriminant, other: ExactDiscriminant) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("per_class", [False, True])
def test_what_is_learned_is_the_same_in_any_order_and_any_parts(per_class: bool) -> None:
    images = random_images(30)
    shuffled = torch.randperm(30, generator=torch.Generator().manual_seed(2))
    whole = taught(images, LABELS, [torch.arange(30)], per_class)
    for parts in ([shuffled], shuffled.split(7), torch.arange(30).split(1)[::-1]):
        assert same(taught(images, LABELS, parts, per_class).ridge, whole.ridge)


@pytest.mark.parametrize("largest", [127, 2**13])  # sums that float32 holds, and sums that it does not
def test_products_are_exact_whatever_their_size(largest: int) -> None:
    x = torch.randint(-largest, largest + 1, (50, BLOCK + 3), generator=torch.Generator().manual_seed(1))
    gram = torch.ones(BLOCK + 3, BLOCK + 3, dtype=torch.float64)
    add_products(gram, x.float())
    assert torch.equal(gram.tril().long(), (x.T @ x + 1).tril())


def test_sums_are_those_of_the_features() -> None:
    images = random_images(30)
    classifier = taught(images, LABELS, [torch.arange(30)])
    x = classifier.eye(images).long()
    assert torch.equal(symmetric(classifier.ridge.gram[0]).long(), x.T @ x)
    for label in range(3):
        assert torch.equal(classifier.ridge.sums[label].long(), x[label == LABELS].sum(dim=0))
    assert classifier.ridge.counts.tolist() == [10, 10, 10]


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 32, 32), (6, 64, 64)])
def test_where_a_mirror_image_means_the_same_it_has_the_same_features(shape: tuple[int, int, int]) -> None:
    images = random_images(5, shape)
    found = Eye(FEATURES, mirrored=True)(images)
    assert torch.equal(found, Eye(FEATURES, mirrored=True)(images.flip(3)))
    plain = Eye(FEATURES)
    between = (plain(images) + plain(images.flip(3))) / 2
    assert float((found - between).abs().max()) <= 1, "each is the mean of both, rounded once and not twice"
    assert not torch.equal(plain(images), plain(images.flip(3)))


def test_teaching_leaves_the_teacher_as_it_was_and_is_watched() -> None:
    classifier, shares = EyeClassifier(Eye(FEATURES)), list[float]()
    classifier.ridge.grow(3)
    classifier.taught(random_images(30), LABELS, shares.append)
    assert not classifier.ridge.counts.any()
    assert shares[-1] == 1.0


@pytest.mark.parametrize("per_class", [False, True])
def test_what_was_added_can_be_taken_out_bit_for_bit(per_class: bool) -> None:
    images = random_images(30)
    classifier = taught(images, LABELS, [torch.arange(20)], per_class)
    before = state_of(classifier.ridge)
    more = classifier.sums(images[20:], LABELS[20:])
    classifier.ridge.add(more)
    assert not torch.equal(classifier.ridge.gram, before["gram"])
    classifier.ridge.remove(more)
    classifier.ridge.solve()
    assert all(torch.equal(value, before[name]) for name, value in classifier.ridge.state_dict().items())


def test_more_than_was_learned_cannot_be_taken_out() -> None:
    images = random_images(30)
    classifier = taught(images, LABELS, [torch.arange(9)])
    with pytest.raises(GcabError, match="more images than were learned"):
        classifier.ridge.remove(classifier.sums(images, LABELS))
    assert int(classifier.ridge.counts.sum()) == 9


def test_a_class_with_sums_of_its_own_can_be_dropped_as_if_it_had_never_been_there() -> None:
    images = random_images(30)
    classifier = taught(images, LABELS, [torch.arange(30)], per_class=True)
    classifier.ridge.drop(1)
    classifier.ridge.solve()
    without, labels = LABELS != 1, LABELS // 2  # classes 0 and 2 become 0 and 1
    other = EyeClassifier(Eye(FEATURES), per_class=True)
    other.ridge.grow(2)
    assert same(classifier.ridge, other.taught(images[without], labels[without]))


def test_a_class_taken_out_without_its_images_leaves_their_spread_and_no_mean() -> None:
    random, labels = torch.Generator().manual_seed(1), torch.arange(3).repeat_interleave(torch.tensor([60, 40, 30]))
    x = (500 * labels[:, None] + 40 * torch.randn(130, SMALL, generator=random)).round().long()
    ridge = ExactDiscriminant(SMALL)
    ridge.grow(3)
    ridge.add(sums_of(x, labels))
    covariance = covariance_of(ridge)
    ridge.stray(2)
    assert ridge.gram.dtype == torch.int32
    assert len(ridge.counts) == 2
    assert torch.allclose(covariance_of(ridge), covariance, rtol=0, atol=0.02), "but for rounding"
    ridge.solve()
    loaded = ExactDiscriminant(SMALL)
    loaded.grow(2)
    loaded.load_state_dict(ridge.state_dict(), strict=True)
    assert same(loaded, ridge)


def test_of_a_class_of_one_image_nothing_is_left() -> None:
    x, labels = torch.randint(0, 99, (41, SMALL), generator=torch.Generator().manual_seed(3)), torch.arange(41) // 20
    ridge = ExactDiscriminant(SMALL)
    ridge.grow(3)
    ridge.add(sums_of(x, labels))
    ridge.stray(2)
    assert torch.equal(ridge.gram.long(), sums_of(x[:40], labels[:40]).gram)


def covariance_of(ridge: ExactDiscriminant) -> Tensor:
    """Σ of features as they are."""
    factor, scale = ridge.system().factor, ridge.system().scale
    return (factor @ factor.T - ridge.system().r * torch.eye(SMALL)) / scale / scale[:, None]


def test_the_solution_is_the_textbooks_discriminant_on_standardised_features() -> None:
    images, labels = random_images(90), torch.tensor([0] * 50 + [1] * 30 + [2] * 10)
    classifier = taught(images, labels, torch.arange(90).split(40))
    x = classifier.eye(images).double()
    around = x - torch.stack([x[labels == label].mean(dim=0) for label in range(3)])[labels]
    deviation = ((around.square().sum(dim=0) + x.var(dim=0, correction=0)) / (90 - 3 + 1)).sqrt()
    z = torch.where(deviation > 0, (x - x.mean(dim=0)) / deviation.clamp_min(1e-9), 0.0)
    means = torch.stack([z[labels == label].mean(dim=0) for label in range(3)])
    within = z - means[labels]
    inverse = torch.linalg.inv(within.T @ within / 90 + ridge_for(FEATURES, 90) * torch.eye(FEATURES).double())
    freedom = (inverse * (within.T @ within / 90)).sum()
    counts = torch.bincount(labels).double()
    squares = ((means @ inverse) * means).sum(dim=1) - freedom / counts  # without what the noise of a mean adds
    expected = (1 - (freedom + 1) / 90) * (z @ inverse @ means.T - 0.3 * squares + (counts / 90).log())
    found = classifier(images).double()
    assert (found - expected).abs().max() < 0.02 * expected.abs().max(), "the trace is an estimate"
    system = classifier.ridge.system()
    assert system.freedom() == pytest.approx(float(freedom), rel=0.05)
    assert torch.allclose(system.rule.weight, inverse @ means.T, atol=1e-9)


def test_a_class_of_few_images_among_many_is_found() -> None:
    random = torch.Generator().manual_seed(1)
    centres = 12 * torch.randn(4, SMALL, generator=random)

    def draw(counts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(4).repeat_interleave(torch.tensor(counts))
        return (100 + centres[labels] + 20 * torch.randn(len(labels), SMALL, generator=random)).round().long(), labels

    ridge = ExactDiscriminant(SMALL)
    ridge.grow(4)
    ridge.add(sums_of(*draw([6, 300, 300, 300])))
    ridge.solve()
    new, labels = draw([200] * 4)
    right = (ridge(new.float()).argmax(dim=1) == labels).float()
    assert right[labels > 0].mean() > 0.8
    assert right[labels == 0].mean() > 0.5


def test_a_feature_that_never_varies_has_no_say() -> None:
    ridge = ExactDiscriminant(SMALL)
    ridge.grow(2)
    x = torch.randint(0, 99, (40, SMALL), generator=torch.Generator().manual_seed(3))
    x[:, 5], x[:, 6] = 7, x[:, 4]
    ridge.add(sums_of(x, torch.arange(40) % 2))
    ridge.solve()
    assert bool(ridge.weight.isfinite().all())
    assert not ridge.weight[:, 5].any()
    assert torch.allclose(ridge.weight[:, 6], ridge.weight[:, 4]), "the same feature twice shares its weight"


def sums_of(x: Tensor, labels: Tensor) -> Sums:
    gram = x.T @ x
    counts = torch.bincount(labels)
    sums = torch.stack([x[labels == label].sum(dim=0) for label in range(len(counts))])
    lower = torch.tril_indices(*gram.shape)
    return Sums(gram[lower[0], lower[1]][None], sums, counts)


def test_sums_that_outgrow_32_bits_get_64_and_are_read_back() -> None:
    """Both ways: what has been taken out fits into 32 bits again."""
    x = torch.randint(0, 129, (40, SMALL), generator=torch.Generator().manual_seed(4))
    ridge, labels = ExactDiscriminant(SMALL), torch.arange(40) % 2
    ridge.grow(2)
    ridge.add(sums_of(x, labels))
    small = state_of(ridge)
    assert ridge.gram.dtype == torch.int32
    many = Sums(*(part * 2**14 for part in sums_of(x, labels)))
    ridge.add(many)
    assert ridge.gram.dtype == torch.int64
    assert int(ridge.gram.max()) > 2**31
    exact = (x.T @ x) * (1 + 2**14)
    assert torch.equal(symmetric(ridge.gram[0]).long(), exact)
    ridge.solve()
    loaded = ExactDiscriminant(SMALL)
    loaded.grow(2)
    loaded.load_state_dict(ridge.state_dict(), strict=True)
    assert loaded.gram.dtype == torch.int64
    assert same(loaded, ridge)
    ridge.remove(many)
    assert ridge.gram.dtype == torch.int32
    assert torch.equal(ridge.gram, small["gram"])


def test_growing_keeps_what_is_known_and_new_classes_are_learned_beside_it() -> None:
    centres, noise = random_images(5, seed=8) // 2, random_images(50, seed=9) // 2
    labels = torch.arange(50) % 5
    images, old = centres[labels] + noise, labels < 3
    classifier = taught(images[old], labels[old], [torch.arange(30)])
    before = classifier(images)
    classifier.ridge.grow(2)
    assert torch.allclose(classifier(images)[:, :3], before, atol=1e-6 * float(before.abs().max()))
    assert bool((classifier(images).argmax(dim=1) < 3).all()), "what was never seen is never named"
    classifier.ridge = classifier.taught(images[~old], labels[~old])
    assert torch.equal(classifier(images).argmax(dim=1), labels)


def test_stored_bytes_are_those_of_the_sums_and_of_the_solution() -> None:
    classifier = taught(random_images(30), LABELS, [torch.arange(30)])
    triangle = FEATURES * (FEATURES + 1) // 2
    assert classifier.ridge.nbytes() == 4 * triangle + 4 * 3 * FEATURES + 8 * 3 + 4 * 3 * FEATURES + 4 * 3
    assert set(classifier.state_dict()) == {f"ridge.{name}" for name in ("gram", "sums", "counts", "weight", "bias")}


def test_filters_add_up_to_nothing_and_their_products_are_exact_in_single_precision() -> None:
    for bank in filters().values():
        assert not bank.kernels.sum(dim=(1, 2, 3)).any()
        assert float(bank.kernels.abs().sum(dim=(1, 2, 3)).max()) * 255 / 2 < 2**24


def test_this_version_sees_what_it_always_saw() -> None:
    """Models hold sums of features: whoever changes what is seen must change the version."""
    y, x = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    image = torch.stack([x * y % 256, (x * x + 3 * y) % 256, (5 * x + y * y) % 256])[None]
    found = Eye(4096)(image).long()
    assert (VERSION, int(found.sum()), int(found.square().sum())) == (2, 356450, 34374794)
    found = Eye(4096, mirrored=True)(image).long()
    assert (VERSION, int(found.sum()), int(found.square().sum())) == (2, 357492, 33880122)
