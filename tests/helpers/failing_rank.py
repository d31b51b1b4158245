"""What each of two processes does, one of which fails while the other waits for it: for hours, if nobody ends it."""

from gcab.parallel.launch import Launch
from gcab.training.distributed import process_group
from helpers.spread_runs import CPU

if __name__ == "__main__":
    launch = Launch.from_environment()
    if not launch.is_first:
        raise RuntimeError("before it has met the other")
    with process_group(launch, CPU):
        pass
