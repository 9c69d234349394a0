"""The ``pytest-redline`` command: what is not a test run."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from pytest_redline.errors import GridError, RedlineError
from pytest_redline.paths import is_grid


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

    init = commands.add_parser(
        "init",
        help="write a commented grid to start from",
        description="Write a commented grid file, made for a recording where one is named. With --demo, copy the "
        "bundled grids into this folder instead; then run pytest.",
    )
    init.add_argument("recording", nargs="?", type=Path, help="CSV or JSONL that holds your outcomes")
    init.add_argument("--output", type=Path, metavar="GRID", help="NAME.redline.yaml by default")
    init.add_argument("--name", default="", help="name of the grid; that of the recording by default")
    init.add_argument("--reference", metavar="LABEL", help="the conservative configuration; the first one by default")
    init.add_argument("--demo", action="store_true", help="copy the bundled grids and what they read")
    init.add_argument("--force", action="store_true", help="write over files that are there")
    init.set_defaults(run=_init)

    schema = commands.add_parser("schema", help="print the JSON Schema of grid files")
    schema.add_argument("--certificate", action="store_true", help="print that of certificates instead")
    schema.set_defaults(run=_schema)

    validate = commands.add_parser(
        "validate",
        help="check grid files without reading outcomes",
        description="Check grid files without reading outcomes; fails when one is faulty or named so that pytest does "
        "not collect it.",
    )
    validate.add_argument("grids", nargs="+", type=Path, metavar="GRID")
    validate.set_defaults(run=_validate)

    verify = commands.add_parser(
        "verify",
        help="compute a certificate again from itself, offline",
        description="Compute everything in a certificate again from the outcomes it holds; fails when any byte of it "
        "was changed. This proves that it is consistent, not who made it. Exit status 0 means consistent and "
        "unchanged, whatever the gate's verdict.",
    )
    verify.add_argument("certificates", nargs="+", type=Path, metavar="CERT")
    verify.add_argument("--require-passed", action="store_true", help="also fail when the gate did not pass")
    verify.set_defaults(run=_verify)

    options = parser.parse_args(arguments)
    return int(options.run(options))


def _init(options: argparse.Namespace) -> int:
    from pytest_redline.grid_schema import NAME_PATTERN
    from pytest_redline.starting import refuse_existing, starting_grid, write_demo

    try:
        if options.demo:
            for path in write_demo(Path(), options.force):
                print(f"wrote {path}")
            print("Run pytest here. The grid arithmetic is served: it needs pip install 'pytest-redline[engine]'.")
            return 0
        stem = options.recording.name.split(".")[0] if options.recording else "my-grid"
        name = options.name or re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "my-grid"
        if not re.fullmatch(NAME_PATTERN, name):
            raise GridError(f"{name!r} cannot name a grid; letters, digits and . _ - are allowed")
        path = options.output or Path(f"{name}.redline.yaml")
        if not is_grid(path):
            raise GridError(f"{path}: pytest collects only redline.yaml and *.redline.yaml; name the file so")
        refuse_existing([path], options.force)
        text = starting_grid(options.recording, path.parent, name, options.reference)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except RedlineError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot be written: {error}", file=sys.stderr)
        return 1
    print(f"wrote {path}; read it, name the population, then run pytest")
    return 0


def _schema(options: argparse.Namespace) -> int:
    if options.certificate:
        from pytest_redline.certificate_schema import json_schema
    else:
        from pytest_redline.grid_schema import json_schema
    print(json.dumps(json_schema(), indent=2))
    return 0


def _validate(options: argparse.Namespace) -> int:
    from pytest_redline.grid_file import load_grid

    failed = False
    for path in options.grids:
        try:
            grid = load_grid(path, ini_alpha=_ANY_ALPHA)
        except RedlineError as error:
            failed = True
            print(error, file=sys.stderr)
        else:
            print(f"{path}: {grid.name}, {grid.m} configurations, reference {grid.reference}")
        if not is_grid(path):
            failed = True
            print(
                f"{path}: pytest collects only redline.yaml and *.redline.yaml (or .yml); rename this file",
                file=sys.stderr,
            )
    return int(failed)


def _verify(options: argparse.Namespace) -> int:
    from pytest_redline.report.words import decision
    from pytest_redline.verify import verify

    failed = False
    for path in options.certificates:
        try:
            certificate = verify(path)
        except RedlineError as error:
            failed = True
            print(error, file=sys.stderr)
            continue
        verdict = f"NOT passed: {', '.join(certificate.failing)}" if certificate.failing else "passed"
        print(f"{path}: consistent and unchanged; gate {verdict}")
        print(f"  {decision(certificate)}")
        print(f"  {certificate.promise}")
        if options.require_passed and certificate.failing:
            failed = True
            print(
                f"{path}: --require-passed: the gate did not pass, as {', '.join(certificate.failing)} "
                f"{'is' if len(certificate.failing) == 1 else 'are'} not certified",
                file=sys.stderr,
            )
    return int(failed)


_ANY_ALPHA = 0.5  # a grid may leave alpha to the command line or the ini file, which no validation sees
