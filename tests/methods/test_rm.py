"""Rainbow Memory: which images it keeps, and how batches are mixed."""

import pytest
import torch
from small_b import SETTING, SIDE, batch_of, begin, build, end, fit, images_of, learn, snapshot, tasks, terms

from gcab.data.perturbations import PERTURBATIONS, cut_out, perturbed
from gcab.data.tasks import Batch
from gcab.methods.rm import at_equal_steps

FIRST, SECOND = tasks(2, 3)


def test_twelve_views_are_bytes_and_differ_from_the_image() -> None:
    torch.manual_seed(1)
    images = images_of(FIRST).images
    views = list(perturbed(images))
    assert len(views) == len(PERTURBATIONS) == 12
    for view in views:
        assert view.dtype == torch.uint8
        assert view.shape == images.shape
        assert not torch.equal(view, images)
    assert torch.equal(views[4], images.flip(3))
    assert torch.equal(views[8], 255 - images)
    assert int((views[0] == 0).sum()) < int((views[3] == 0).sum()), "a larger square"


def test_a_box_is_cut_out_of_wide_images_in_their_own_shape() -> None:
    torch.manual_seed(1)
    black = cut_out(0.5, torch.full((50, 3, 8, 24), 9, dtype=torch.uint8))[:, 0] == 0
    assert black.any(dim=2).sum(dim=1).max() in (3, 4)
    assert black.any(dim=1).sum(dim=1).max() in (11, 12)


def test_a_constant_predictor_is_certain_and_a_divided_one_is_not() -> None:
    method = build("rm", buffer=6)
    learn(method, FIRST)
    images = images_of(FIRST).images

    class Answers(torch.nn.Module):
        """Says what it was told to, one view after the other."""

        def __init__(self, *classes: int) -> None:
            super().__init__()
            self.classes, self.turn = classes, 0

        def forward(self, part: torch.Tensor) -> torch.Tensor:
            label = self.classes[self.turn % len(self.classes)]
            self.turn += 1
            return torch.nn.functional.one_hot(torch.full((len(part),), label), 3).float()

    method.network = Answers(1)
    assert method.uncertainty(images).tolist() == [0.0] * len(images)
    method.network = Answers(0, 1, 1)
    assert method.uncertainty(images).tolist() == pytest.approx([1 / 3] * len(images))


def test_ranks_are_at_equal_steps_and_equals_keep_their_order() -> None:
    worth = torch.tensor([0.5, 0.1, 0.9, 0.3, 0.7, 0.2])
    ranks = worth.argsort(stable=True).tolist()
    assert at_equal_steps(worth, 3).tolist() == [ranks[0], ranks[2], ranks[4]]
    assert at_equal_steps(worth, 2).tolist() == [ranks[0], ranks[3]]
    assert at_equal_steps(worth, 4).tolist() == ranks[:4]
    assert at_equal_steps(torch.zeros(6), 3).tolist() == [0, 2, 4]
    assert at_equal_steps(worth, 9).tolist() == ranks
    assert at_equal_steps(worth, 0).tolist() == []


def test_the_memory_is_full_balanced_and_has_no_image_twice() -> None:
    method = build("rm", buffer=9)
    learn(method, FIRST)
    assert int(method.memory.filled) == 9
    assert torch.bincount(method.memory.labels).min() >= 4
    learn(method, SECOND)
    counts = torch.bincount(method.memory.labels)
    assert int(counts.sum()) == 9
    assert int(counts.min()) >= 1
    stored = method.memory.images.flatten(1)
    assert len(stored.unique(dim=0)) == 9


def test_cutmix_takes_a_box_from_another_image_and_its_share_of_the_loss() -> None:
    method = build("rm", buffer=4, cutmix=1.0)
    begin(method, FIRST)
    data = images_of(FIRST, 6)
    images = SETTING.normalise(data.images)
    torch.manual_seed(3)
    mixed = method.batch(Batch(images, data.labels))
    changed = (mixed.images != images).any(dim=1)  # (6, H, W)
    kept = float(mixed.targets["kept"])
    assert 0 < kept < 1
    area = round((1 - kept) * SIDE**2)
    for number in range(6):
        assert int(changed[number].sum()) in (0, area), "the same box for all, or the image itself"
        of_others = [
            bool((mixed.images[number] == torch.where(changed[number], other, images[number])).all())
            for other in images
        ]
        assert any(of_others)
    logits = method.network(mixed.images)
    own = torch.nn.functional.cross_entropy(logits, mixed.labels)
    inside = torch.nn.functional.cross_entropy(logits, mixed.targets["labels_inside"])
    torch.testing.assert_close(terms(method, mixed)["classification"], kept * own + (1 - kept) * inside)


def test_unmixed_batches_stay_as_they_are() -> None:
    method = build("rm", buffer=4, cutmix=0.0)
    begin(method, FIRST)
    assert batch_of(method, FIRST).targets == {}
    method = build("rm", buffer=4, cutmix=1e-9)
    begin(method, FIRST)
    batch = batch_of(method, FIRST)
    assert float(batch.targets["kept"]) == 1
    assert torch.equal(batch.images, SETTING.normalise(images_of(FIRST).images))


def test_a_new_head_forgets_the_old_one_and_is_an_option() -> None:
    for new_head in (False, True):
        method = build("rm", buffer=4, new_head=new_head)
        learn(method, FIRST)
        before = snapshot(method.network.head.parts[0])
        begin(method, SECOND)
        same = torch.equal(method.network.head.parts[0].linear.weight, before["linear.weight"])
        assert same != new_head


def test_half_of_a_step_is_stored_images() -> None:
    method = build("rm", buffer=4)
    learn(method, FIRST)
    assert method.replay(5) is None
    begin(method, SECOND)
    assert len(method.replay(5).labels) == 5
    fit(method, SECOND)
    end(method, SECOND)
