"""What each of several processes does, started by `torchrun`: checks of its own, then whole runs.

`python -m helpers.spread_ranks FOLDER`: the runs' folders and one file of digests for each rank are written there.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, distributed, nn

from gcab.config import to_dict
from gcab.data.augment import Augment, AugmentConfig
from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.errors import GcabError
from gcab.methods.finetune import Finetune, FinetuneOptions
from gcab.model.encoder import DropPath, EncoderConfig
from gcab.model.projectors import Distance, drift_distance
from gcab.parallel import ranks
from gcab.parallel.launch import Launch
from gcab.runs.checkpoint import flatten
from gcab.runs.environment import environment
from gcab.runs.run import Observer, Run
from gcab.runs.shared import SharedRun
from gcab.training.distributed import SharedAugment, process_group, shared_loss
from gcab.training.feed import Feed
from helpers.spread_runs import CASES, CPU, config_of, data_of

WORLD = 2


def check_rows_of_draws() -> None:
    """What an image meets is what it would meet in one process."""
    torch.manual_seed(1)
    whole = torch.rand(6 * WORLD, 2)
    torch.manual_seed(1)
    assert torch.equal(ranks.uniform(6, 2, device=CPU), whole[ranks.rank() :: WORLD])
    layer, branch = DropPath(0.5), torch.ones(8 * WORLD, 3, 2)
    torch.manual_seed(2)
    kept = layer(ranks.rows(branch))
    torch.manual_seed(2)
    assert torch.equal(kept[:, 0, 0] > 0, ranks.rows(torch.rand(8 * WORLD, 1, 1) >= 0.5)[:, 0, 0])
    images = torch.randint(0, 256, (5 * WORLD, 3, 8, 8), dtype=torch.uint8, generator=seeded(3))
    config, mean, std = AugmentConfig(probability=1.0), (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)
    alone = Augment(config, mean, std)(images, seeded(4))
    assert torch.equal(SharedAugment(config, mean, std)(ranks.rows(images), seeded(4)), ranks.rows(alone))
    values, labels, mixing = (
        torch.rand(4 * WORLD, 3, 8, 8, generator=seeded(3)),
        torch.arange(4 * WORLD),
        replace(config, cutmix=0.7),
    )
    whole_mixed, _ = Augment(mixing, mean, std).mix(values, labels, seeded(5))
    mixed, _ = SharedAugment(mixing, mean, std).mix(ranks.rows(values), ranks.rows(labels), seeded(5))
    assert torch.equal(mixed, ranks.rows(whole_mixed))


def check_drift_gradient() -> None:
    """The distances are norms over the global batch, and averaged gradients are theirs."""
    random = seeded(5)
    features, target = torch.randn(4 * WORLD, 3, 2, generator=random), torch.randn(4 * WORLD, 3, 2, generator=random)
    kinds: tuple[Distance, ...] = ("l2", "rms", "cosine")
    for kind in kinds:
        weight = torch.tensor([0.7, -0.4], requires_grad=True)
        expected = drift(kind, weight * features, target)
        gradient = torch.autograd.grad(expected, weight)[0]
        found = drift_distance(kind, weight * ranks.rows(features), ranks.rows(target))
        shared = ranks.mean(torch.autograd.grad(found, weight)[0])
        torch.testing.assert_close(ranks.mean(found.detach()), expected.detach())
        torch.testing.assert_close(shared, gradient)
    still = torch.zeros(2, 3, requires_grad=True)
    drift_distance("l2", still, torch.zeros(2, 3)).backward()
    assert still.grad is not None
    assert torch.equal(still.grad, torch.zeros(2, 3)), "nothing has moved yet: no gradient, and no division by zero"


def drift(kind: Distance, projected: Tensor, target: Tensor) -> Tensor:
    """The definition, which knows of no ranks."""
    if kind == "cosine":
        return (1 - torch.nn.functional.cosine_similarity(projected, target, dim=-1)).mean()
    squares = (projected - target).square().sum()
    return (squares / target.numel() if kind == "rms" else squares).sqrt()


def check_averaged_gradients() -> None:
    """Ranks start equal and get the gradient of the global batch, task after task; unused parameters have none."""
    torch.manual_seed(ranks.rank())
    method = Finetune(Setting(EncoderConfig("vit", 1, 8, 2, patch=4), 8, (0.5,) * 3, (0.2,) * 3), FinetuneOptions())
    method.unused = nn.Parameter(torch.ones(2))
    images, labels = torch.randn(4 * WORLD, 3, 8, 8, generator=seeded(6)), torch.arange(4 * WORLD) % 2
    for index in range(2):
        method.grow(Task(index, 2 * index, ("a", "b")))
        loss, progress = shared_loss(method), Progress(torch.tensor(0), 1)
        for _ in range(3):
            method.zero_grad(set_to_none=True)
            loss(Batch(ranks.rows(images), ranks.rows(labels)), progress)["classification"].backward()
            assert method.unused.grad is None
            weights = [weight for weight in method.parameters() if weight is not method.unused]
            averaged = [weight.grad for weight in weights]
            alone = method.loss(Batch(images, labels), progress)["classification"]
            torch.testing.assert_close(averaged, list(torch.autograd.grad(alone, weights)))
        del loss


def check_exchange() -> None:
    """What one rank has, all get."""
    assert ranks.from_first(lambda: {"rank": ranks.rank()}) == {"rank": 0}
    own = torch.full((3,), float(ranks.rank()))
    assert ranks.mean(own).tolist() == [0.5] * 3
    assert own.tolist() == [float(ranks.rank())] * 3
    ranks.make_equal([own])
    assert own.tolist() == [0.0] * 3
    seen: list[int] = []

    def double(part: Tensor) -> Tensor:
        seen.append(int(part[0]))
        return 2 * part

    results = ranks.shared_work(double, torch.arange(7).split(2))
    assert torch.cat(results).tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert seen == [[0, 4], [2, 6]][ranks.rank()], "each part is computed once"
    assert ranks.shared_work(double, ()) == []


def check_shares(folder: Path) -> None:
    """A batch has equal shares or is refused; who goes ahead is done before the others begin."""
    data = TaskImages(torch.zeros(9, 3, 2, 2, dtype=torch.uint8), torch.arange(9))
    order = Feed(data, 4, CPU).order(seeded(7))
    assert torch.equal(order, torch.randperm(9, generator=seeded(7))[:8].view(2, 4)[:, ranks.rank() :: WORLD])
    for batch_size in (3, 100):
        with pytest.raises(GcabError, match="cannot be shared equally by 2 processes"):
            Feed(data, batch_size, CPU)
    with ranks.one_goes_ahead(ranks.rank() == 0):
        if ranks.rank() == 0:
            (folder / "decoded").touch()
        assert (folder / "decoded").exists()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Watched(Run):
    """Takes a digest of everything that a checkpoint would hold whenever a record is written."""

    digests: tuple[str, ...] = ()

    def write(self, record: Mapping[str, Any]) -> None:
        super().write(record)
        optimiser = self.trainer.optimiser
        state = {"method": dict(self.method.state_dict()), "optimiser": optimiser and optimiser.state_dict()}
        tensors, structure = flatten(state)
        content = safetensors.torch.save(tensors) + json.dumps(structure).encode()
        self.digests = (*self.digests, hashlib.sha256(content).hexdigest())


def experiment_in(path: Path, method: str, profile: str, observe: Observer, checkpoint_seconds: float) -> Watched:
    config = config_of(method, profile)
    data = data_of(config)
    tasks = [list(task.names) for task in data.scenario.tasks]
    document = {**environment(), "format": 1, "config": to_dict(config), "tasks": tasks}
    run = SharedRun.prepare(path, document)
    return Watched(config, data, run, CPU, observe, checkpoint_seconds)


def digests_of_run(folder: Path, method: str, profile: str) -> tuple[str, ...]:
    experiment = experiment_in(folder / f"{method}-{profile}", method, profile, lambda _: None, 1e9)
    experiment.finish()
    return experiment.digests


class StoppedError(Exception):
    """Of a run that is to be continued."""


def check_resume(folder: Path, method: str, profile: str, expected: tuple[str, ...]) -> None:
    """A run stopped within a task goes on bit for bit."""

    def stop(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch" and (record["task"], record["epoch"]) == (2, 2):
            raise StoppedError

    path = folder / "stopped"
    stopped = experiment_in(path, method, profile, stop, checkpoint_seconds=0)
    with pytest.raises(StoppedError):
        stopped.finish()
    stopped.run.checkpoints.wait()  # they are written beside the training
    distributed.barrier()
    resumed: list[dict[str, Any]] = []
    experiment = experiment_in(path, method, profile, resumed.append, checkpoint_seconds=1e9)
    experiment.finish()
    assert (resumed[0]["task"], resumed[0]["epoch"]) == (2, 1)
    assert experiment.digests == expected[-len(experiment.digests) :]


def main(folder: Path) -> None:
    with process_group(Launch.from_environment(), CPU):
        assert ranks.world() == WORLD
        check_rows_of_draws()
        check_drift_gradient()
        check_averaged_gradients()
        check_exchange()
        check_shares(folder)
        digests = {f"{method}-{profile}": digests_of_run(folder, method, profile) for method, profile in CASES}
        check_resume(folder, "er", "official", digests["er-official"])
        (folder / f"digests-{ranks.rank()}.json").write_text(json.dumps(digests))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # at once: to leave the group in order may take the other rank, which waits for this one
