"""The engine Slurm: every call is a job of its own, submitted by submitit (pip install 'gcab[slurm]')."""

import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcab.errors import GcabError
from gcab.fleet.engine import Call, Engine, Outcome, attempt, first_line

if TYPE_CHECKING:
    from submitit import AutoExecutor, Job

POLL_SECONDS = 0.5
MINUTES = 24 * 60  # that a job may take unless told; submitit's own are 5
CLUSTER = "cluster"  # the setting that is not Slurm's: slurm, or local for a try without it


class Slurm(Engine):
    """The cluster whose login node this is; logs and pickles of all jobs lie in one folder that its nodes see."""

    def __init__(self, folder: Path, settings: Mapping[str, str], at_once: int | None) -> None:
        super().__init__(at_once)
        self.folder, self.settings = folder.resolve(), settings
        self.executor: AutoExecutor | None = None
        self.jobs: dict[int, Job[Outcome]] = {}

    def open(self) -> None:
        if importlib.util.find_spec("submitit") is None:
            raise GcabError("--on slurm needs submitit, which is not installed: pip install 'gcab[slurm]'.")
        from submitit import AutoExecutor

        cluster = self.settings.get(CLUSTER, "slurm")
        try:
            self.executor = AutoExecutor(folder=self.folder, cluster=cluster)
            self.executor.update_parameters(name="gcab", timeout_min=MINUTES, **parameters(self.settings))
        except RuntimeError:
            raise GcabError(
                "there is no Slurm on this machine (no srun): give the command where jobs are submitted."
            ) from None
        except (AssertionError, NameError, TypeError, ValueError) as error:
            raise GcabError(f"--slurm is refused by submitit: {first_line(error)}") from None

    def start(self, number: int, call: Call) -> None:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        assert self.executor is not None
        try:
            self.jobs[number] = self.executor.submit(attempt, call)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            said = str(error).strip().splitlines()[-1:] or [type(error).__name__]  # of sbatch, after its command
            raise GcabError(f"Slurm took no job ({said[0]}): see --slurm, the same command continues.") from None

    def ended(self, seconds: float) -> dict[int, Outcome]:
        end = time.monotonic() + seconds
        while not (ready := [number for number, job in self.jobs.items() if job.done()]) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        return {number: outcome_of(self.jobs.pop(number)) for number in ready}

    def close(self) -> None:
        for job in self.jobs.values():
            job.cancel(check=False)


def outcome_of(job: "Job[Outcome]") -> Outcome:
    """What a job returned, or that it was killed, preempted or out of time."""
    from submitit.core.utils import UncompletedJobError

    try:
        return job.result()
    except UncompletedJobError:
        return Outcome(problem=f"its job {job.job_id} was lost ({job.state}): see {job.paths.stderr}", again=True)


def parameters(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings by submitit's names; those that it does not know are passed to sbatch as they are."""
    from submitit import SlurmExecutor

    known, found, others = SlurmExecutor._valid_parameters(), {}, {}
    for key, text in settings.items():
        name, value = key.replace("-", "_"), int(text) if text.isdecimal() else text
        if name in known:
            found[f"slurm_{name}"] = value
        elif key != CLUSTER:
            others[key] = value
    return {**found, **({"slurm_additional_parameters": others} if others else {})}
