"""torchrun's launcher as a child of `launch.py`: the same arguments, ends with its parent.

Says in one line what only the launcher can know: that a process was ended by a signal.
"""

from __future__ import annotations

import logging
import signal
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun

from dflash_train.access import end_with_parent, name_process
from dflash_train.errors import EXIT_FAILED


def main() -> int:
    """Start the processes and wait for them; the exit code."""
    end_with_parent()
    name_process("dflash-launch")
    logging.disable(logging.CRITICAL)  # whoever failed says so itself
    try:
        torchrun(sys.argv[1:])
    except ChildFailedError as error:
        for rank, failure in error.failures.items():
            if failure.exitcode < 0:
                name = signal.Signals(-failure.exitcode).name
                sys.stderr.write(f"dflash-train: rank {rank} was ended by {name}\n")
        return EXIT_FAILED
    except SignalException:
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
