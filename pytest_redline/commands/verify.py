"""``pytest-redline verify``: is a certificate what its own outcomes say."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_redline.commands import Commands
from pytest_redline.errors import RedlineError


def add(commands: Commands) -> None:
    """Declare the command."""
    verify = commands.add_parser(
        "verify",
        help="compute a certificate again from itself, offline",
        description="Compute everything in a certificate again from the outcomes it holds; fails when any byte of it "
        "was changed. This proves that it is consistent, not who made it. Exit status 0 means consistent and "
        "unchanged, whatever the gate's verdict.",
    )
    verify.add_argument("certificates", nargs="+", type=Path, metavar="CERT")
    verify.add_argument("--require-passed", action="store_true", help="also fail when the gate did not pass")
    verify.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from pytest_redline.report.words import decision, fault
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
            reasons = ", ".join(f"{label} {fault(certificate, label)}" for label in certificate.failing)
            print(f"{path}: --require-passed: the gate did not pass, as {reasons}", file=sys.stderr)
    return int(failed)
