"""`dflash-train` whose log lines wait in a buffer: nothing is flushed line by line."""

import logging
import sys

from dflash_train.cli import main

logging.StreamHandler.flush = lambda _handler: None  # type: ignore[method-assign]  # on purpose

if __name__ == "__main__":
    sys.exit(main())
