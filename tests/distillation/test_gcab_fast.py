"""GCAB-Fast: one pass that imitates many, a mask of the asked size, and room for the next task."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any, Literal, cast

import pytest
import torch
from helpers.tasks import IMAGE_SIZE, images_of
from helpers.teachers import (
    HIDDEN,
    NEXT,
    PROFILES,
    SETTING,
    SHORT,
    TASKS,
    WIDTH,
    distilled,
    learn,
    logits,
    options,
    student,
    teacher,
    train,
)
from rich.console import Console
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gcab import terminal
from gcab.bench.cost import count_macs
from gcab.config import resolve
from gcab.data.tasks import Setting, Task, ignore
from gcab.errors import GcabError
from gcab.fast.folded import FoldedDecoder
from gcab.fast.graphs import WARM_UP, unchanged
from gcab.methods import gcab_fast, one_pass
from gcab.methods.distillation import softened_divergence
from gcab.methods.gcab import Gcab
from gcab.methods.gcab_fast import (
    GcabFast,
    cut_and_mirrored,
    distill,
    fast_options,
    start_head,
    start_one_pass,
    start_student,
)
from gcab.methods.method import state_bytes
from gcab.methods.one_pass import Halfway, Imitation
from gcab.model.encoder import DropPath
from gcab.model.heads import Head
from gcab.runs.checkpoint import flatten, unflatten
from gcab.training.trainer import finish

pytestmark = pytest.mark.repeats


def some_pixels(count: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(256, (count, 3, IMAGE_SIZE, IMAGE_SIZE), generator=generator, dtype=torch.uint8)


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("profile", PROFILES)
def test_one_pass_takes_the_place_of_all(profile: str) -> None:
    before = snapshot(teacher(profile))
    fast = student(profile)
    network = fast.network
    assert same(snapshot(teacher(profile)), before)
    assert network.classes == [7]
    assert network.finished == 1  # which gates are hard depends on it
    assert len(network.heads) == len(network.tokens) == len(network.gate_in.embeddings) == 1
    assert len(network.cascade.projectors) == 0
    assert same(snapshot(network.encoder), snapshot(teacher(profile).network.encoder))
    assert same(snapshot(fast.statistics), snapshot(teacher(profile).statistics))
    assert state_bytes(fast) < state_bytes(teacher(profile))
    assert logits(fast, some_pixels()).shape == (9, 7)
    with torch.no_grad():
        readable = fast.predict(SETTING.normalise(some_pixels()))
    assert torch.allclose(readable, logits(fast, some_pixels()), atol=1e-4)


@pytest.mark.parametrize("profile", ["extended", "paper"])
@pytest.mark.parametrize("capacity", [0.2, 0.4, 0.6, 0.8, 1.0])
def test_the_mask_has_exactly_the_asked_share(profile: str, capacity: float) -> None:
    fast = student(profile, capacity=capacity, distillation_steps=1)
    for gate, mask, units in zip(
        (fast.network.gate_in, fast.network.gate_hidden), fast.network.masks(0), (WIDTH, HIDDEN), strict=True
    ):
        assert mask is not None
        assert set(mask.unique().tolist()) <= {0.0, 1.0}
        assert mask.sum() == round(capacity * units)
        assert torch.equal(gate.used, mask)
    assert fast.capacity() == {"input": pytest.approx(capacity), "hidden": pytest.approx(capacity)}


def test_the_seed_decides() -> None:
    one, again, other = distilled(seed=1), distilled(seed=1), distilled(seed=2)
    assert same(snapshot(one), snapshot(again))
    assert not torch.equal(one.network.gate_in.used, other.network.gate_in.used)


def test_no_path_is_dropped_while_a_student_looks() -> None:
    """Whatever mode its teacher was left in."""
    master, images = copy.deepcopy(teacher("extended")), images_of(TASKS[-1]).images
    for module in master.modules():
        if isinstance(module, DropPath):
            module.rate.fill_(0.5)
    chosen = fast_options(master.options, **SHORT)
    calm, lively = (distill(master.train(mode), images, chosen, seed=1) for mode in (False, True))
    assert same(snapshot(calm), snapshot(lively))


@torch.no_grad()
def of_passes(method: Gcab, pixels: Tensor) -> Tensor:
    """What the passes alone say, without statistics."""
    features = method.features(SETTING.normalise(pixels))
    return method.network.logits(method.network.spaces(features, compensate=True))


@pytest.mark.parametrize("profile", PROFILES)
def test_the_student_says_what_its_teacher_says(profile: str) -> None:
    seen = torch.cat([images_of(task, count=60, seed=5).images for task in TASKS])  # of old tasks as well
    wanted = of_passes(teacher(profile), seen)
    novice, expert = (
        student(profile, distillation_steps=1),
        student(profile, distillation_steps=600, views=16, distillation_lr=1e-2),
    )
    far, near = (softened_divergence(of_passes(fast, seen), wanted, temperature=1.0) for fast in (novice, expert))
    assert near < 0.5 * far
    groups = [2, 3, 2] if profile == "extended" else [7]  # statistics help to tell tasks apart
    for given, asked in zip(of_passes(expert, seen).split(groups, 1), wanted.split(groups, 1), strict=True):
        assert (given.argmax(dim=1) == asked.argmax(dim=1)).double().mean() > 0.85
    said, taught = logits(expert, seen).argmax(dim=1), logits(teacher(profile), seen).argmax(dim=1)
    assert (said == taught).double().mean() > 0.85


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_steps_teach_what_plain_ones_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = copy.deepcopy(teacher("extended")).cuda()
    images, chosen = images_of(TASKS[-1]).images, fast_options(on_gpu.options, capacity=0.8, distillation_steps=50)
    recorded = distill(on_gpu, images, chosen, seed=1).cpu()
    monkeypatch.setattr(one_pass, "recorded_step", lambda step, *_: step)
    plain = distill(on_gpu, images, chosen, seed=1).cpu()
    assert torch.allclose(of_passes(recorded, some_pixels()), of_passes(plain, some_pixels()), atol=1e-2)
    assert not torch.allclose(
        of_passes(recorded, some_pixels()), of_passes(student(distillation_steps=1), some_pixels())
    )


def tried(work: Callable[[], None], tensors: Sequence[Tensor], optimiser: torch.optim.Optimizer) -> Any:
    """What recording a step begins with on a GPU, where a distillation may be shorter than that."""
    with unchanged(tensors, optimiser):
        for _ in range(WARM_UP):
            work()
    return work


def test_recording_tries_steps_and_takes_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    master, images = teacher("extended"), images_of(TASKS[-1]).images
    chosen = fast_options(master.options, capacity=0.8, distillation_steps=1)
    plain = distill(master, images, chosen, seed=1)
    monkeypatch.setattr(one_pass, "recorded_step", tried)
    assert same(snapshot(distill(master, images, chosen, seed=1)), snapshot(plain))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_student_goes_on_where_it_stopped(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, with steps that are recorded, too; what a checkpoint holds is a copy."""
    master, images, seen = teacher(profile), images_of(TASKS[-1]).images, list[Halfway]()
    chosen = fast_options(master.options, **{**SHORT, "distillation_steps": 12})

    def look(imitation: Imitation) -> None:
        tensors, structure = flatten(imitation.state())
        seen.append(Halfway(imitation.steps, unflatten(tensors, structure)))

    alone = snapshot(distill(master, images, chosen, 1, after_step=look))
    assert [halfway.steps for halfway in seen] == [*range(1, 13)]
    for halfway in (seen[0], seen[6], seen[-1]):
        assert same(snapshot(distill(master, images, chosen, 1, halfway=halfway)), alone)
    monkeypatch.setattr(one_pass, "recorded_step", tried)
    assert same(snapshot(distill(master, images, chosen, 1, halfway=seen[5])), alone)


def test_the_divergence_by_hand() -> None:
    wanted, given = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.9, 0.1]]).log()
    assert softened_divergence(given, wanted, 1.0) == pytest.approx(
        0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    )
    assert softened_divergence(wanted + 3, wanted, 1.0) == pytest.approx(0, abs=1e-7)  # logits are relative


def test_a_temperature_keeps_the_size_of_small_differences() -> None:
    wanted = torch.tensor([[0.01, -0.01]])
    cold, hot = (softened_divergence(-wanted, wanted, temperature) for temperature in (1.0, 10.0))
    assert hot == pytest.approx(float(cold), rel=1e-2)


def test_the_head_starts_as_all_heads_side_by_side() -> None:
    network = copy.deepcopy(teacher("official").network)
    with torch.no_grad():
        for parameter in network.heads.parameters():  # those of the LayerNorm too
            parameter.normal_()
    feature = torch.randn(5, WIDTH)
    apart = torch.cat([head(feature) for head in network.heads], dim=1)
    decoder = FoldedDecoder(network)
    start_one_pass(network)
    with torch.no_grad():
        start_head(cast(Head, network.heads[0]).linear, decoder)
    assert torch.allclose(network.heads[0](feature), apart, atol=1e-5)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_token_starts_as_the_newest(profile: str) -> None:
    network = copy.deepcopy(teacher(profile).network)
    tokens = [token.detach().clone() for token in network.tokens]
    assert len(tokens) == (1 if profile == "paper" else len(TASKS))
    start_student(network, FoldedDecoder(network), 0.8)
    assert torch.equal(network.tokens[0], tokens[-1])
    assert not any(torch.equal(network.tokens[0], token) for token in tokens[:-1])


def test_the_rate_of_imitation_falls_along_a_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate that Adam has when it takes each step, wherever it was set."""
    taken: list[tuple[type, float]] = []
    teacher("extended")  # learned before anybody looks
    monkeypatch.setattr(GcabFast, "estimate_seconds", lambda *_: (1.0, 1.0))  # it imitates as well

    def look(optimiser: torch.optim.Optimizer, *_: Any) -> None:
        taken.extend((type(optimiser), float(group["lr"])) for group in optimiser.param_groups)

    handle = register_optimizer_step_pre_hook(look)
    try:
        student("extended", distillation_steps=6, distillation_lr=0.02)
    finally:
        handle.remove()
    assert {kind for kind, _ in taken} == {torch.optim.Adam}
    shares = [1 + math.cos(math.radians(30 * step)) for step in range(6)]
    assert [lr for _, lr in taken] == pytest.approx([0.01 * share for share in shares])


@pytest.mark.parametrize("profile", PROFILES)
def test_block_token_and_head_learn_and_nothing_else(profile: str) -> None:
    """From the same start, as the seed says, for one step and for three."""
    one, three = (student(profile, distillation_steps=steps).network for steps in (1, 3))
    assert torch.equal(one.gate_in.used, three.gate_in.used)
    learning = {id(p) for part in (three.block, three.tokens, three.heads) for p in part.parameters()}
    for (name, parameter), before in zip(three.named_parameters(), one.parameters(), strict=True):
        assert torch.equal(parameter, before) == (id(parameter) not in learning), name
        assert parameter.grad is None, name
    freed = [parameter.requires_grad for parameter in three.block.parameters()]
    assert freed == [parameter.requires_grad for parameter in teacher(profile).network.block.parameters()]


def test_imitation_asks_in_batches_at_the_temperature_of_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []
    rows: set[tuple[float, ...]] = set()

    def look(given: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        asked.append((len(given), temperature))
        rows.update(map(tuple, wanted.tolist()))
        return softened_divergence(given, wanted, temperature)

    monkeypatch.setattr(GcabFast, "estimate_seconds", lambda *_: (1.0, 1.0))  # it imitates as well
    monkeypatch.setattr(one_pass, "softened_divergence", look)
    student("extended", distillation_steps=20, distillation_batch=18, temperature=3.0, views=2)
    assert asked == [(18, 3.0)] * 20
    assert len(rows) > 36  # 24 images, two views of each: 360 draws hardly leave one of the 48 out


@torch.no_grad()
def test_targets_are_what_the_teacher_says_of_an_image_and_of_other_views_of_it() -> None:
    master, images = teacher("extended"), images_of(TASKS[-1]).images
    fast = GcabFast(SETTING, fast_options(master.options))
    fast.network = master.network
    torch.manual_seed(2)
    features, wanted = fast.targets(FoldedDecoder(master.network), images, 3, ignore)
    views = features.chunk(3)
    assert torch.allclose(views[0], master.features(SETTING.normalise(images)), atol=1e-5)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(views[one], views[other], atol=1e-2)
    for seen, said in zip(views, wanted.chunk(3), strict=True):
        spaces = master.network.spaces(seen, compensate=True)
        assert torch.allclose(said, master.network.logits(spaces), atol=1e-4)
        assert not torch.allclose(said, master.network.logits([seen] * 3), atol=1e-4)


def weighted(weight: float, meet: Literal["probabilities", "logits"]) -> GcabFast:
    """A student that decides as models of earlier versions do."""
    fast = student("extended")
    fast.options = replace(fast.options, eye=0, referee=False, statistics_weight=weight, statistics_meet=meet)
    fast.eye = fast.referee = None
    return fast


def test_statistics_join_the_one_pass_with_their_weight() -> None:
    fast = weighted(0.2, "logits")
    with torch.no_grad():
        statistics = fast.statistics(fast.features(SETTING.normalise(some_pixels())))
        expected = of_passes(fast, some_pixels()) + fast.options.statistics_weight * statistics
        assert torch.allclose(logits(fast, some_pixels()), expected, atol=1e-3)


def test_statistics_meet_probabilities_within_each_task() -> None:
    """As models of earlier versions decide, whose one pass serves several tasks."""
    fast = weighted(1.0, "probabilities")
    with torch.no_grad():
        own = logits(fast, some_pixels()) - fast.statistics(fast.features(SETTING.normalise(some_pixels())))
    for of_task in own.split([task.classes for task in TASKS], dim=1):
        assert torch.allclose(of_task.exp().sum(dim=1), torch.ones(9), atol=1e-3)


def test_what_the_mask_closes_changes_nothing() -> None:
    fast = student("extended")
    before = of_passes(fast, some_pixels())
    with torch.no_grad():
        for weight, free in fast.network.updatable():
            weight.add_(free * torch.randn(weight.shape))
    assert torch.equal(of_passes(fast, some_pixels()), before)
    with torch.no_grad():
        for weight, free in fast.network.updatable():
            weight.add_((1 - free) * torch.randn(weight.shape))
    assert not torch.allclose(of_passes(fast, some_pixels()), before, atol=1e-2)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("capacity", [0.8, 1.0])
def test_the_next_task_leaves_the_one_pass_as_it_is(profile: str, capacity: float) -> None:
    fast = student(profile, capacity=capacity)
    features = torch.randn(5, fast.network.tokens_per_image, WIDTH, generator=torch.Generator().manual_seed(4))

    @torch.no_grad()
    def of_old_tasks() -> Tensor:
        masks = fast.network.masks(0)
        return fast.network.classify(0, fast.network.decode(0, features, masks), masks)

    before, answers = snapshot(fast.network.block), of_old_tasks()
    owned = [free == 0 for _, free in fast.network.updatable()]
    weights = [weight.detach().clone() for weight, _ in fast.network.updatable()]
    train(fast, NEXT)
    assert fast.network.classes == [7, 2]
    for (weight, _), mask, old in zip(fast.network.updatable(), owned, weights, strict=True):
        assert torch.equal(weight[mask], old[mask])
    assert torch.equal(of_old_tasks(), answers)
    assert same(snapshot(fast.network.block), before) == (capacity == 1)  # free weights learn, where there are any


@pytest.mark.parametrize("capacity", [0.8, 1.0])
def test_another_task_is_learned_after_distillation(capacity: float) -> None:
    fast = student("extended", capacity=capacity, distillation_steps=400, views=8)
    held_out = [images_of(task, count=40, seed=6) for task in (*TASKS, NEXT)]
    learn(fast, NEXT, epochs=20)
    assert fast.network.classes == [9]
    assert fast.task_sizes == [2, 3, 2, 2]
    assert fast.capacity()["input"] == pytest.approx(capacity)

    def accuracy(data: list[int]) -> float:
        hits = [logits(fast, held_out[index].images).argmax(dim=1) == held_out[index].labels for index in data]
        return float(torch.cat(hits).double().mean())

    assert accuracy([3]) > 0.8
    assert accuracy([0, 1, 2]) > 0.6  # nine classes: by chance it would be a ninth


def grown(tasks: tuple[Task, ...], profile: str = "extended") -> GcabFast:
    torch.manual_seed(77)
    method = GcabFast(SETTING, fast_options(options(profile), distillation_steps=5, views=1))
    for task in tasks:
        method.grow(task)
    return method


@pytest.mark.parametrize("profile", PROFILES)
def test_a_finished_model_comes_back(profile: str) -> None:
    fast = student(profile)
    again = grown(TASKS, profile)
    again.load_state_dict(fast.state_dict(), strict=True)
    assert torch.equal(logits(again.eval(), some_pixels()), logits(fast, some_pixels()))
    assert again.capacity() == fast.capacity()


def test_a_model_comes_back_in_the_middle_of_a_task() -> None:
    fast = student("extended")
    train(fast, NEXT, epochs=1)
    again = grown((*TASKS, NEXT))
    again.begin_task(NEXT)
    again.load_state_dict(fast.state_dict(), strict=True)
    assert again.network.classes == [7, 2]
    assert torch.equal(logits(again.eval(), some_pixels()), logits(fast.eval(), some_pixels()))


def test_it_never_has_more_than_two_passes() -> None:
    method = grown(TASKS[:1])
    sizes = []
    for task in TASKS[:1]:
        method.begin_task(task)
        method.end_task(task, images_of(task))
    for task in (*TASKS[1:], NEXT):
        train(method, task, epochs=1)
        assert method.network.tasks == 2
        assert [method.position(index) for index in range(task.index + 1)] == [0] * task.index + [1]
        assert method.compensate(torch.randn(2, 4, WIDTH), 0) is not None
        method.end_task(task, images_of(task))
        assert method.network.tasks == 1
        assert {method.position(index) for index in range(task.index + 1)} == {0}
        assert method.compensate(torch.randn(2, 4, WIDTH), 0) is None
        with torch.no_grad():
            assert method.embed(SETTING.normalise(some_pixels()), task.index, compensate=True).shape == (9, WIDTH)
        sizes.append(state_bytes(method) - method.prototype_bytes())
    of_a_class = 4 * (WIDTH + 1)  # all that a further class costs: a row of the head
    assert sizes == [sizes[0], sizes[0] + 2 * of_a_class, sizes[0] + 4 * of_a_class]


def test_distilled_once_more_with_another_capacity() -> None:
    fast = student(capacity=0.8)
    smaller = distill(fast, images_of(TASKS[-1]).images, fast_options(fast.options, capacity=0.4), seed=1)
    assert smaller.task_sizes == fast.task_sizes == [2, 3, 2]
    assert smaller.capacity()["input"] == pytest.approx(0.4)


def test_without_gates_there_is_one_open_pass() -> None:
    torch.manual_seed(1)
    plain = Gcab(SETTING, options("official", **{"options.network.gates": False}))
    for task in TASKS[:2]:
        learn(plain, task, epochs=1)
    fast = distill(plain, images_of(TASKS[1]).images, fast_options(plain.options, distillation_steps=5, views=1), 1)
    assert fast.capacity() == {}
    assert logits(fast, some_pixels()).shape == (9, 5)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (4, 12)])
def test_views_show_two_images_cut_along_one_line(height: int, width: int) -> None:
    images = torch.arange(50, dtype=torch.uint8).reshape(50, 1, 1, 1).expand(50, 3, height, width).contiguous()
    torch.manual_seed(2)
    views = cut_and_mirrored(images)
    assert views.dtype == torch.uint8
    assert views.shape == images.shape
    mixed = above = beside = 0
    for index, view in enumerate(views):
        shown = view[0]
        values = set(shown.unique().tolist())
        assert len(values) <= 2
        rows, columns = (shown == shown[:, :1]).all(), (shown == shown[:1]).all()
        assert rows or columns  # one image above the other, or side by side
        mixed += len(values) == 2 and index in values
        above += bool(rows) and not columns
        beside += bool(columns) and not rows
    assert mixed > 25
    assert min(above, beside) > 12  # each for about half of them


def test_views_are_mirrored() -> None:
    image = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8).expand(40, 3, 8, 8)
    torch.manual_seed(2)
    corners = {tuple(view[0, :1, :1].flatten().tolist()) for view in cut_and_mirrored(image)}
    assert corners == {(0,), (7,), (56,), (63,)}


def test_who_watches_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    method = teacher("extended")
    chosen = fast_options(method.options, views=2, distillation_steps=4)
    monkeypatch.setattr(GcabFast, "estimate_seconds", lambda *_: (1.0, 3.0))  # seconds of encoding, of imitating
    distill(method, images_of(TASKS[-1]).images, chosen, 1, shares.append)
    assert shares == [0.125, 0.25, 0.4375, 0.625, 0.8125, 1.0]


def test_what_is_continued_has_its_steps_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shares, seen = list[float](), list[Halfway]()
    method, images = teacher("extended"), images_of(TASKS[-1]).images
    chosen = fast_options(method.options, views=2, distillation_steps=4)
    monkeypatch.setattr(GcabFast, "estimate_seconds", lambda *_: (1.0, 3.0))
    distill(method, images, chosen, 1, after_step=lambda done: seen.append(Halfway(done.steps, done.state())))
    distill(method, images, chosen, 1, shares.append, seen[1])
    assert shares == [0.375, 0.5, 0.625, 0.8125, 1.0]  # two steps of four, two views of two, and the steps left


def test_the_share_that_is_done_follows_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that gives every view a second and every step two."""
    clock, shares = 0.0, list[float]()
    method, encode = teacher("extended"), GcabFast.targets
    imitate = Imitation.run

    def slow_imitation(self: Imitation, after_step: Callable[[], object]) -> None:
        def stepped() -> None:
            nonlocal clock
            clock += 2.0
            after_step()

        imitate(self, stepped)

    def slow_targets(self: GcabFast, decoder: Any, images: Tensor, views: int, watch: Any) -> tuple[Tensor, Tensor]:
        nonlocal clock
        clock += views * len(images) / 24
        return encode(self, decoder, images, views, watch)

    monkeypatch.setattr("gcab.methods.gcab_fast.time.perf_counter", lambda: clock)
    monkeypatch.setattr(Imitation, "run", slow_imitation)
    monkeypatch.setattr(GcabFast, "targets", slow_targets)
    chosen = fast_options(method.options, views=4, distillation_steps=48)
    distill(method, images_of(TASKS[-1]).images, chosen, 1, shares.append)
    assert shares[3] == pytest.approx(4 / 100)  # four views, then 48 steps
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_rehearsal_changes_nothing() -> None:
    fast, images = student("extended"), images_of(NEXT).images
    train(fast, NEXT, epochs=1)
    Gcab.end_task(fast, NEXT, images_of(NEXT))
    before, random = snapshot(fast), torch.get_rng_state()
    encoding, imitating = fast.estimate_seconds(images)
    assert encoding > 0
    assert imitating > 0
    assert same(snapshot(fast), before)
    assert torch.equal(torch.get_rng_state(), random)


def test_the_end_of_a_task_tells_who_watches() -> None:
    shares: list[float] = []
    method = grown(())
    for task in TASKS[:2]:
        train(method, task, epochs=1)
        finish(method, task, images_of(task), 1, shares.append)
        assert bool(shares) == (task.index > 0)  # the first task is one pass anyway
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert method.watch is ignore


def test_where_there_is_no_terminal_progress_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("gcab.terminal.time.monotonic", lambda: clock[-1])
    console = Console(file=StringIO(), force_terminal=False)
    with terminal.WorkDisplay(console, "a [model]  distilling") as watch:
        for moment, share in ((3.0, 0.4), (12.0, 0.6), (13.0, 0.9)):  # 0.4 was done before it began
            clock.append(moment)
            watch(share)
        watch.note("continued")
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said == "a [model]  distilling: 60 %, about 18 s left\na [model]  distilling: continued\n"


def test_many_images_get_fewer_views(monkeypatch: pytest.MonkeyPatch) -> None:
    method, images = teacher("extended"), images_of(TASKS[-1]).images
    fast = GcabFast(SETTING, fast_options(method.options, views=4))
    fast.network, fast.task_sizes = method.network, [2, 3, 2]
    decoder, of_one_view = FoldedDecoder(method.network), len(images) * 4 * WIDTH * 4
    for room, views in ((10 * of_one_view, 4), (3 * of_one_view, 3), (1, 1)):
        monkeypatch.setattr(gcab_fast, "LARGEST_CACHE", room)
        features, wanted = fast.targets(decoder, images, fast.views_of(images), ignore)
        assert features.shape == (views * len(images), 4, WIDTH)
        assert wanted.shape == (views * len(images), 7)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"capacity": 0.0}, "options.capacity is 0.0"),
        ({"capacity": 1.1}, "options.capacity is 1.1"),
        ({"capacity": math.nan}, "options.capacity is nan"),
        ({"distillation_steps": 0}, "options.distillation_steps is 0"),
        ({"temperature": -1.0}, "options.temperature is -1.0"),
        ({"lambda_gcab": -1.0}, "options.lambda_gcab is -1.0"),
    ],
)
def test_impossible_options_are_refused(change: dict[str, float], sentence: str) -> None:
    with pytest.raises(GcabError, match=sentence):
        fast_options(options("extended"), **change)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_papers_network_costs_at_most_five_per_cent_more_than_its_encoder(profile: str) -> None:
    """The eye, where there is one, adds its own share, which is stated apart."""
    config = resolve("cifar100/10", "gcab-fast", profile)
    costs = {}
    for eye in {0, config.options.eye}:
        with torch.device("meta"):
            setting = Setting(config.encoder, 32, SETTING.mean, SETTING.std)
            method = GcabFast(setting, replace(config.options, eye=eye))
            for index in range(10):
                method.grow(Task(index, 10 * index, tuple(map(str, range(10)))))
            start_one_pass(method.network)
        encoder, costs[eye] = count_macs(method.eval(), 32)
    assert encoder > 5e8
    assert encoder < costs[0] < 1.05 * encoder
    assert costs[config.options.eye] - costs[0] < 0.08 * encoder
