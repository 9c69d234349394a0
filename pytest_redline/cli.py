"""The ``pytest-redline`` command: what is not a test run."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from pytest_redline.commands import engine, init, plan, schema, state, study, validate, verify

COMMANDS = (  # as --help lists them
    init,
    engine,
    plan,
    schema,
    state,
    study,
    validate,
    verify,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 0 when all is well, 1 when what was checked is not. Wrong usage exits with 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of few letters gets escapes, not a traceback
    parser = argparse.ArgumentParser(
        prog="pytest-redline",
        description="Tools around Redline's gate. The gate itself is a test run: pytest --redline-alpha=0.1",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('pytest-redline')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    options = parser.parse_args(arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output, such as head, wants no more of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor a complaint from the flush at exit
        return 1
    return status
