"""The subcommands of ``pytest-redline``, one module each; ``--help`` imports them all, so heavy imports wait for `run`.

Each has ``add(commands)``, which declares its arguments and sets ``run``: what takes the parsed options and returns the
exit status, 0 when all is well and 1 when what was checked is not.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
