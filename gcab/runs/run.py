"""A whole run: every task trained, evaluated and saved, resumable at any moment."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from gcab.config import RunConfig, config_hash, to_dict
from gcab.data.images import ImageSet
from gcab.data.registry import dataset
from gcab.data.scenario import Scenario, TaskStream
from gcab.data.tasks import Task, TaskImages
from gcab.errors import GcabError
from gcab.evaluation.evaluate import Evaluator
from gcab.evaluation.metrics import results_from_records, summary
from gcab.methods.method import Method, grow
from gcab.parallel.devices import suitable_threads
from gcab.parallel.ranks import rank, world
from gcab.records import Count, EpochRecord, FinalRecord
from gcab.runs.assemble import build_method, save_method
from gcab.runs.checkpoint import Checkpoint, CheckpointStore
from gcab.runs.environment import environment, hardware
from gcab.runs.folder import RunFolder
from gcab.runs.lock import RunLock
from gcab.runs.shared import SharedRun
from gcab.training.distributed import SharedAugment
from gcab.training.task import TaskTraining
from gcab.training.trainer import Epoch, Trainer

Observer = Callable[[dict[str, Any]], None]  # sees every record as it is written
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Data:
    """The two splits of a run's data set, and the tasks they make."""

    train: ImageSet  # including held-out images
    test: ImageSet
    scenario: Scenario


def load_data(config: RunConfig, root: Path | None) -> Data:
    """The scenario follows from the names of the classes; where images are held out, the test images stay unread."""
    info = dataset(config.scenario.dataset)
    if info.needs_root and root is None:
        raise GcabError(f"the data set {info.name} needs a folder: give --data DIR.")
    if root is not None and not info.needs_root and not root.exists():
        raise GcabError(f"there is no folder '{root}': leave it out, the data set {info.name} needs none.")
    train = info.load(root, "train", config.scenario.image_size)
    scenario = Scenario.build(config.scenario, config.seed, train.classes)
    if config.scenario.validation > 0:
        held_out = scenario.held_out(train)
        return Data(train, ImageSet(train.images[held_out], train.labels[held_out], train.classes), scenario)
    test = info.load(root, "test", config.scenario.image_size)
    if train.classes != test.classes:
        raise GcabError(f"the training and test images of {info.name} in {root} have different classes.")
    return Data(train, test, scenario)


def run_path(root: Path, config: RunConfig) -> Path:
    return root / config.scenario.name / config.method / f"{config.seed}-{config_hash(config)}"


def train_run(
    config: RunConfig,
    data: Data,
    path: Path,
    device: torch.device,
    observe: Observer,
    command: str = "",
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> dict[str, Any]:
    """Start the run in `path` or continue it where it stopped; returns its final record."""
    with RunLock(path) if rank() == 0 else nullcontext():
        document = {
            **environment(),
            **hardware(device, world()),
            "precision": "bfloat16" if config.training.in_bfloat16(on_gpu=device.type == "cuda") else "float32",
            "format": 1,
            "command": command,
            "config": to_dict(config),
            "tasks": [list(task.names) for task in data.scenario.tasks],
            "images": {"train": data.train.looks(), "test": data.test.looks()},
        }
        run = SharedRun.prepare(path, document)
        final = run.final()
        if final is None:
            with suitable_threads(device, config.features_per_batch()):
                try:
                    final = Run(config, data, run, device, observe, checkpoint_seconds).finish()
                finally:  # the lock must outlast what is being written
                    run.checkpoints.wait()
        return final


class Run:
    """Trains, evaluates and checkpoints one run."""

    def __init__(
        self,
        config: RunConfig,
        data: Data,
        run: RunFolder,
        device: torch.device,
        observe: Observer,
        checkpoint_seconds: float,
    ) -> None:
        self.config, self.data, self.run, self.device, self.observe = config, data, run, device, observe
        self.method = build_method(config).to(device)
        self.method.eval()
        self.trainer = Trainer(
            self.method,
            config.training,
            SharedAugment(config.augment, self.method.setting.mean, self.method.setting.std),
            device,
            config.seed,
            lambda text: observe({"kind": "warning", "text": text}),
        )
        self.training: TaskTraining | None = None  # of the task under way
        self.evaluator = make_evaluator(self.method, data, device)
        self.tasks = data.scenario.merged() if self.method.joint else data.scenario.tasks
        self.checkpoint_seconds = checkpoint_seconds
        self.saved_at = self.started = time.monotonic()
        self.seconds_before = 0.0

    def finish(self) -> dict[str, Any]:
        """Run the remaining tasks, then write the final record."""
        position, checkpoint = self.restore()
        for task in self.tasks[position:]:
            stream = self.data.scenario.open(task, self.data.train)
            self.learn(task, stream, checkpoint)
            checkpoint = None
            stream.close()
            if task.index + 1 < len(self.tasks):
                self.save(task.index + 1, epochs=0)
        record = self.final_record()
        self.write(record)
        return dict(record)

    def learn(self, task: Task, stream: TaskStream, checkpoint: Checkpoint | None) -> None:
        """One task from its first epoch (or where a checkpoint left it) to its saved model."""
        data, held_out = stream.train().divided(self.config.training.held_out if self.method.judged else 0.0)
        if checkpoint is None:
            self.probe(task, data)
        self.training = TaskTraining(self.trainer, task, data, held_out)
        self.training.begin()
        if checkpoint is not None:
            self.training.resume(checkpoint.position["epoch"], checkpoint.state)
        self.training.run(self.after_epoch)
        ending = {"kind": "ending", "task": task.index + 1}  # for observers, not for the log
        self.training.end(lambda share: self.observe({**ending, "share": share}))
        self.training = None
        self.evaluate(task)
        if rank() == 0:
            save_method(self.run.model, self.method, self.config, self.tasks[: task.index + 1])

    def after_epoch(self, epoch: Epoch) -> None:
        line: EpochRecord = {
            "kind": "epoch",
            "task": Count(epoch.task.index + 1),
            "epoch": Count(epoch.number),
            "epochs": Count(self.config.training.epochs_of(epoch.task.index)),
            "step": epoch.number * epoch.steps,
            "losses": epoch.losses,
            "lr": epoch.lr,
            "seconds": epoch.seconds,
        }
        self.write(line)
        if time.monotonic() - self.saved_at >= self.checkpoint_seconds:
            self.save(epoch.task.index, epoch.number)

    def probe(self, task: Task, data: TaskImages) -> None:
        """How well a new task's classes separate before it is learned, here and in an untrained encoder."""
        if task.index == 0 or not self.evaluator.has_features():
            return
        untrained = build_method(self.config).to(self.device).eval()
        grow(untrained, self.tasks[0], self.config.seed)
        fresh = make_evaluator(untrained, self.data, self.device)
        before, baseline = self.evaluator.probe(task, data), fresh.probe(task, data)
        self.write({"kind": "probe", "task": Count(task.index + 1), "before": before, "untrained": baseline})

    def evaluate(self, task: Task) -> None:
        """Write the predictions and the record after a task."""
        seen = self.data.scenario.tasks if self.method.joint else self.tasks[: task.index + 1]
        number = len(seen)
        record, logits, labels = self.evaluator.record(seen, self.references(task))
        probes = {probe["task"]: probe for probe in self.run.records("probe")}
        probe = probes.get(Count(number))
        record["views"] = self.evaluator.parts(seen)
        record["probe"] = None if probe is None else {"before": probe["before"], "untrained": probe["untrained"]}
        record["seconds"] = self.seconds()
        self.run.save_arrays(f"task-{number:02d}", logits=logits.float().numpy(), labels=labels.numpy())
        reference = self.evaluator.reference(task)
        if reference is not None:
            self.run.save_arrays(f"features-{number:02d}", features=reference.half().numpy())
        embeddings = None if self.method.joint else self.evaluator.embeddings(self.tasks[0])
        if embeddings is not None:
            self.run.save_embedding(number, embeddings)
        self.write(record)

    def references(self, task: Task) -> dict[int, Tensor]:
        """Features of earlier tasks' test images as they were when each task had just been learned."""
        found: dict[int, Tensor] = {}
        for index in range(task.index):
            arrays = self.run.load_arrays(f"features-{index + 1:02d}")
            if arrays is not None:
                found[index] = torch.from_numpy(arrays["features"].astype(np.float32))
        return found

    def final_record(self) -> FinalRecord:
        records = self.run.records("task")
        last = records[-1]
        metrics: dict[str, Any] = summary(results_from_records(records))
        record: Any = {
            "kind": "final",
            **metrics,
            "parameters": last["parameters"],
            "bytes": last["bytes"],
            "seconds": self.seconds(),
        }
        return cast(FinalRecord, record)

    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def write(self, record: Mapping[str, Any]) -> None:
        self.run.append(record)
        self.observe(dict(record))

    def save(self, tasks_done: int, epochs: int) -> None:
        """A checkpoint after `epochs` epochs of the task after `tasks_done` tasks."""
        position = {
            "task": tasks_done,
            "epoch": epochs,
            "metrics_bytes": self.run.metrics_bytes(),
            "seconds": self.seconds(),
        }
        under_way = self.training.state() if self.training is not None and epochs else None
        state = under_way or {"method": dict(self.method.state_dict())}
        self.run.checkpoints.save_in_background(position, state)
        self.saved_at = time.monotonic()

    def restore(self) -> tuple[int, Checkpoint | None]:
        """Continue from the newest intact checkpoint: (first task to train, the checkpoint if it was under way)."""
        store: CheckpointStore = self.run.checkpoints
        checkpoint, warnings = store.load_latest()
        for warning in warnings:
            self.observe({"kind": "warning", "text": warning})
        if checkpoint is None:
            self.run.truncate_metrics(0)
            return 0, None
        position, epochs = checkpoint.position["task"], checkpoint.position["epoch"]
        for task in self.tasks[:position]:
            grow(self.method, task, self.config.seed)
        if not epochs:
            self.method.load_state_dict(checkpoint.state["method"], strict=True)
        self.run.truncate_metrics(checkpoint.position["metrics_bytes"])
        self.seconds_before = checkpoint.position["seconds"]
        self.observe({"kind": "resumed", "task": position + 1, "epoch": epochs})
        return position, checkpoint if epochs else None


def data_of(run: RunFolder, config: RunConfig, root: Path | None) -> Data:
    """The data set of a run, with the classes that it was trained on."""
    data = load_data(config, root)
    if [list(task.names) for task in data.scenario.tasks] != run.tasks:
        raise GcabError(f"the data in {root} has other classes than the run {run.path} was trained on: give its own.")
    return data


def make_evaluator(method: Method, data: Data, device: torch.device, views: int = 1) -> Evaluator:
    return Evaluator(method, TaskImages(data.test.images, data.scenario.relabel(data.test.labels)), device, views)
