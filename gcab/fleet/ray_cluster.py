"""The engine Ray: every call is a task of a cluster, with its share of a GPU (pip install 'gcab[ray]')."""

import importlib.util
import logging
import os
import socket
from typing import Any
from urllib.parse import urlsplit

from gcab.errors import GcabError
from gcab.fleet.engine import Call, Engine, Outcome, attempt, first_line
from gcab.version import VERSION

SCHEME = "ray://"
CLIENT_PORT = 10001  # Ray's own
PATIENCE = 10.0  # seconds to reach an address
OWN = "local"  # Ray's name for a cluster that is started for the command
OWN_STORE = 128 * 2**20  # bytes of shared memory for a cluster of our own: only words go through it
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its default from now on; it warns where this is not set
}


class RayCluster(Engine):
    """The cluster at an address, or the one of this machine (`RAY_ADDRESS`), or one that is started for the command."""

    def __init__(self, address: str | None, at_once: int | None, gpu_share: float | None, on_gpu: bool) -> None:
        """`on_gpu`: where `gpu_share` is not given, a whole GPU for each call if the cluster has any."""
        super().__init__(at_once)
        self.address, self.gpu_share, self.on_gpu = address, gpu_share, on_gpu
        self.numbers: dict[Any, int] = {}  # task -> number of its call
        self.task: Any = None

    def open(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise GcabError("--on ray needs Ray, which is not installed: pip install 'gcab[ray]'.")
        if self.address is not None:
            self.address = require_reachable(self.address)
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        import ray

        try:
            self.connect()
        except Exception as error:  # of many kinds: other versions, no client, no memory
            where = self.address or os.environ.get("RAY_ADDRESS") or "this machine"
            raise GcabError(f"Ray cannot be used on {where} ({first_line(error)}): see that it runs there.") from None
        share = self.gpu_share
        if share is None:
            share = 1.0 if self.on_gpu and ray.cluster_resources().get("GPU") else 0.0
        # Tries are counted by us, and every call has a process of its own.
        self.task = ray.remote(num_cpus=1, num_gpus=share, max_retries=0, max_calls=1)(attempt)

    def connect(self) -> None:
        import ray

        given = {name: value for name, value in os.environ.items() if name.startswith("GCAB_")}
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if given:
            options["runtime_env"] = {"env_vars": given}
        address = self.address or os.environ.get("RAY_ADDRESS") or "auto"
        if address != OWN:
            try:
                ray.init(address, **options)
                return
            except ConnectionError:
                if address != "auto":
                    raise
        ray.init(OWN, num_cpus=self.at_once, include_dashboard=False, object_store_memory=OWN_STORE, **options)

    def start(self, number: int, call: Call) -> None:
        try:
            self.numbers[self.task.remote(call)] = number
        except Exception as error:  # a client hears here what the cluster cannot import
            raise GcabError(
                f"the Ray cluster takes no run ({first_line(error)}): see that gcab {VERSION} is installed there."
            ) from None

    def ended(self, seconds: float) -> dict[int, Outcome]:
        import ray

        try:
            ready, _ = ray.wait(list(self.numbers), timeout=seconds)
        except ConnectionError as error:
            raise GcabError(
                f"the Ray cluster has gone ({first_line(error)}): once it is back the same command continues."
            ) from None
        return {self.numbers.pop(task): outcome_of(task) for task in ready}

    def close(self) -> None:
        import ray

        for task in self.numbers:
            ray.cancel(task, force=True)
        ray.shutdown()


def outcome_of(task: Any) -> Outcome:
    """What a task returned, or how its worker was lost."""
    import ray

    try:
        found: Outcome = ray.get(task)
    except ray.exceptions.RayError as error:
        return Outcome(problem=f"its worker was lost ({type(error).__name__}: {first_line(error)})", again=True)
    return found


def require_reachable(address: str) -> str:
    """The address with its port; Ray itself would try for a minute and say little."""
    try:
        place = urlsplit(address)
        host, port = place.hostname, place.port or CLIENT_PORT
    except ValueError:
        host, port = None, CLIENT_PORT
    if host is None:
        raise GcabError(f"--on {address} is no address: give {SCHEME}HOST or {SCHEME}HOST:PORT.")
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError as error:
        raise GcabError(
            f"no Ray cluster can be reached at {SCHEME}{host}:{port} ({error.strerror or error}): "
            "see that it runs there, and that its client port is open."
        ) from None
    return f"{SCHEME}{host}:{port}"
