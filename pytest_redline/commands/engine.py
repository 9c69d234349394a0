"""``pytest-redline engine inspect``: what the bundled engine would load from a directory."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from pytest_redline.commands import Commands
from pytest_redline.errors import OutcomesError, RedlineError
from pytest_redline.grading import GRADERS


def add(commands: Commands) -> None:
    """Declare the command."""
    engine = commands.add_parser("engine", help="look at what the bundled engine would run")
    kinds = engine.add_subparsers(dest="kind", required=True, metavar="COMMAND")
    inspect = kinds.add_parser(
        "inspect",
        help="say what would be loaded from a checkpoint, and what memory it needs",
        description="Say what the engine would load from a directory in the Hugging Face layout: network, block size, "
        "mask, end tokens, template, memory and knobs. Reads JSON and the headers of safetensors, no weight and no "
        "code. Fails when the directory cannot be loaded or would not fit, and when the gate could not read prompts "
        "with its tokenizer and template, or not serve prompts of this length.",
    )
    inspect.add_argument("checkpoint", metavar="PATH", help="a directory, or bundled:NAME")
    inspect.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of arithmetic")
    inspect.add_argument("--weights", choices=["float32", "bfloat16", "int8", "int4"], help="as they are kept")
    inspect.add_argument("--device", default="auto", help="auto, cpu, cuda, or another name that PyTorch knows")
    inspect.add_argument("--cuda-graphs", action="store_true", help="small batches recorded as CUDA graphs")
    inspect.add_argument("--batch-size", type=int, default=256, metavar="N")
    inspect.add_argument(
        "--prompt-tokens", type=int, metavar="N", help="of the longest prompt; 512 where the model has room for it"
    )
    inspect.add_argument("--mask-id", type=int, metavar="ID", help="where the files do not say it")
    inspect.add_argument("--end-ids", type=_ids, metavar="ID,ID", help="where the files do not say them")
    inspect.add_argument("--template", metavar="NAME", help="instead of the one that would be chosen")
    inspect.add_argument(
        "--grade", choices=sorted(GRADERS), default="boxed", help="grader that the template is chosen for"
    )
    inspect.add_argument(
        "--knob", action="append", default=[], metavar="NAME=VALUE", help="of a configuration, such as block_size=32"
    )
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.set_defaults(run=_inspect)


def _inspect(options: argparse.Namespace) -> int:
    from pytest_redline.checkpoint_rules import checkpoint_directory
    from pytest_redline.inspection import inspect
    from pytest_redline.report.model import render

    try:
        for name in ("batch_size", "prompt_tokens"):
            if (value := getattr(options, name)) is not None and value < 1:
                raise OutcomesError(f"--{name.replace('_', '-')} {value}: at least 1 is needed")
        spec = {
            name: value
            for name in ("dtype", "weights", "device", "mask_id", "end_ids", "template", "cuda_graphs")
            if (value := getattr(options, name)) is not None
        }
        found = inspect(
            checkpoint_directory(options.checkpoint, Path()),
            spec,
            _knobs(options.knob),
            options.batch_size,
            options.prompt_tokens,
            options.grade,
        )
    except RedlineError as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        width = min(shutil.get_terminal_size((80, 24)).columns, 100)
        print(render(found, width, color=sys.stdout.isatty()), end="")
    for problem in found["problems"]:
        print(problem, file=sys.stderr)
    return int(bool(found["problems"]) or not found["memory"]["fits"])


def _ids(text: str) -> list[int]:
    """Token ids as one argument, such as 8,9."""
    return [int(each) for each in text.split(",")]


def _knobs(written: list[str]) -> dict[str, Any]:
    """Knobs as a grid file would read them."""
    import yaml

    knobs = {}
    for text in written:
        name, equals, value = text.partition("=")
        if not equals:
            raise OutcomesError(f"--knob {text}: found no =; write NAME=VALUE")
        try:
            knobs[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise OutcomesError(f"--knob {text}: the value is no YAML") from None
    return knobs
