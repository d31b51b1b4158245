"""Batches: the same ones whether the images live on the device or are streamed to it."""

import pytest
import torch
from torch import Tensor

from gcab.data.tasks import TaskImages
from gcab.training.feed import Feed, StreamedBatches, fits

CPU = torch.device("cpu")


def data_of(count: int) -> TaskImages:
    numbers = torch.arange(count)
    return TaskImages(numbers.to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, 2, 2), numbers + 100)


def epoch_of(feed: Feed, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    return list(feed.batches(feed.order(torch.Generator().manual_seed(seed))))


@pytest.mark.parametrize("count", [4, 11, 12, 40])
def test_streamed_and_resident_batches_are_the_same(count: int) -> None:
    resident, streamed = (epoch_of(Feed(data_of(count), 4, CPU, resident=kind)) for kind in (True, False))
    assert len(resident) == len(streamed) == count // 4
    for (images, labels), (other_images, other_labels) in zip(resident, streamed, strict=True):
        assert torch.equal(images, other_images)
        assert torch.equal(labels, other_labels)


@pytest.mark.parametrize("resident", [True, False])
def test_an_epoch_shows_every_image_once_and_drops_the_partial_batch(resident: bool) -> None:
    feed = Feed(data_of(11), 4, CPU, resident)
    assert feed.steps == 2
    batches = epoch_of(feed)
    assert [len(labels) for _, labels in batches] == [4, 4]
    seen = [label for _, labels in batches for label in labels.tolist()]
    assert len(set(seen)) == 8
    assert seen != sorted(seen)
    for images, labels in batches:
        assert images.dtype == torch.uint8
        assert (images[:, 0, 0, 0].long() + 100).tolist() == labels.tolist()


@pytest.mark.parametrize("resident", [True, False])
def test_a_task_smaller_than_a_batch_is_one_batch(resident: bool) -> None:
    feed = Feed(data_of(3), 128, CPU, resident)
    [(_, labels)] = epoch_of(feed)
    assert feed.steps == 1
    assert sorted(labels.tolist()) == [100, 101, 102]


def test_the_order_follows_from_the_generator() -> None:
    feed = Feed(data_of(40), 4, CPU)
    first, again, other = (feed.order(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first.shape == (10, 4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_slot_is_filled_again_only_when_its_batch_was_taken() -> None:
    source = Feed(data_of(40), 4, CPU, resident=False).source
    assert isinstance(source, StreamedBatches)
    order = torch.arange(40).view(10, 4)
    with source.epoch(order):
        for number in range(10):
            source.ready(number)
            for future in list(source.arriving.values()):
                future.result()  # the thread does all that it may
            later = min(number + 1, 9)
            held = [source.batch(torch.tensor([index]))[1].tolist() for index in (number, later)]
            assert held == [(order[index] + 100).tolist() for index in (number, later)]
            source.taken(number)


def test_slots_hold_real_images_before_the_first_epoch() -> None:
    source = Feed(data_of(40), 4, CPU, resident=False).source
    images, labels = source.batch(torch.tensor([1]))
    assert (images[:, 0, 0, 0].long() + 100).tolist() == labels.tolist() == [100, 101, 102, 103]


def test_slots_stay_where_they_are_from_epoch_to_epoch() -> None:
    feed = Feed(data_of(40), 4, CPU, resident=False)
    places = [(feed.source.images.data_ptr(), feed.source.labels.data_ptr()) for _ in range(2) if epoch_of(feed)]
    assert places[0] == places[1]


def test_a_failure_of_the_thread_reaches_the_step() -> None:
    feed = Feed(data_of(40), 4, CPU, resident=False)
    with pytest.raises(IndexError):
        list(feed.batches(torch.full((3, 4), 99)))
    assert len(epoch_of(feed)) == 10


def test_an_epoch_that_is_left_early_leaves_no_thread_behind() -> None:
    feed = Feed(data_of(40), 4, CPU, resident=False)
    batches = feed.batches(feed.order(torch.Generator().manual_seed(1)))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(epoch_of(feed)) == 10


def test_on_a_cpu_images_are_always_at_hand() -> None:
    assert fits(data_of(4).images, CPU)
    assert Feed(data_of(4), 2, CPU).resident
