"""Random streams that follow from a place in the run alone."""

import torch

from gcab.seeds import derived_seed, generator, seeded


def test_a_seed_is_the_same_in_every_process_and_version() -> None:
    """A changed value would make every published run impossible to repeat."""
    assert derived_seed(1, "epoch", 0, 3) == 1_845_206_412_564_227_845


def test_every_place_has_its_own_seed() -> None:
    places: list[tuple[int, tuple[object, ...]]] = [
        (1, ("epoch", 0, 3)),
        (2, ("epoch", 0, 3)),
        (1, ("shuffle", 0, 3)),
        (1, ("epoch", 1, 3)),
        (1, ("epoch", 0, 4)),
        (1, ("epoch", 0, "3")),
        (1, ("epoch", 3, 0)),
        (1, ("epoch", 0)),
    ]
    seeds = [derived_seed(seed, *place) for seed, place in places]
    assert len(set(seeds)) == len(places)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_generators_repeat_themselves() -> None:
    first, again = (torch.rand(4, generator=generator(1, "a")) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, torch.rand(4, generator=generator(1, "b")))


def test_a_seeded_block_leaves_the_outside_untouched() -> None:
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    with seeded(1, "place"):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(10)
    with seeded(1, "place"):
        assert torch.equal(torch.rand(3), inside)
    with seeded(1, "elsewhere"):
        assert not torch.equal(torch.rand(3), inside)


def test_a_seeded_block_cleans_up_after_an_error() -> None:
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    try:
        with seeded(1, "place"):
            torch.rand(3)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert torch.equal(torch.rand(3), expected)
