"""``pytest-redline schema``: the JSON Schema of what Redline reads and writes."""

from __future__ import annotations

import argparse
import json

from pytest_redline.commands import Commands


def add(commands: Commands) -> None:
    """Declare the command."""
    schema = commands.add_parser("schema", help="print the JSON Schema of grid files")
    kinds = schema.add_mutually_exclusive_group()
    kinds.add_argument("--certificate", action="store_true", help="print that of certificates instead")
    kinds.add_argument("--study", action="store_true", help="print that of studies instead")
    schema.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.certificate:
        from pytest_redline.certificate_schema import json_schema
    elif options.study:
        from pytest_redline.study_schema import json_schema
    else:
        from pytest_redline.grid_schema import json_schema
    print(json.dumps(json_schema(), indent=2))
    return 0
