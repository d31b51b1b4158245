"""`gcab serve` with limits small enough to reach in a test: python -m helpers.small_server MODEL."""

import sys
from pathlib import Path

from gcab.serve.app import make_app
from gcab.serve.limits import Limits
from gcab.serve.security import Door
from gcab.serve.served import Inference
from gcab.serve.server import address, listen, run
from gcab.serve.service import Service

LIMITS = Limits(
    body_bytes=2**20,
    archive_bytes=2**20,
    pixels=2_000_000,
    images=8,
    connections=40,
    header_seconds=1.0,
    body_seconds=1.0,
    zip_files=100,
    zip_bytes=4 * 2**20,
)


def main() -> None:
    listener = listen("127.0.0.1", 0)
    service = Service(Path(sys.argv[1]), Inference("cpu"), LIMITS, allow_teach=True)
    run(make_app(service, Door()), listener, LIMITS, lambda: print(address(listener), flush=True))


if __name__ == "__main__":
    main()
