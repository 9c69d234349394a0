"""What ``pytest-redline engine inspect`` prints: one table within 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from pytest_redline.report.layout import console

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

_CHAT = {True: "the checkpoint holds a chat template", False: "the checkpoint holds no chat template"}


def render(found: Mapping[str, Any], width: int = 80, color: bool = False) -> str:
    """Make the table from what `pytest_redline.inspection.inspect` found."""
    screen, stream = console(width, color)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(found):
        table.add_row(name, text)
    screen.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    network, memory, loaded = found["network"], found["memory"], found["loaded"]
    experts = network["experts"]
    files = ", ".join(f"{name} {_size(size)}" for name, size in found["files"]["types"].items())
    rows = [
        ("checkpoint", found["checkpoint"]),
        ("family", found["family"]),
        (
            "layers",
            f"{network['layers']} of width {network['hidden']}, {network['heads']} heads of {network['head_dim']}, "
            f"{network['kv_heads']} of keys and values",
        ),
    ]
    if experts:
        shared = f", a shared one of width {experts['shared_width']}" if experts["shared_width"] else ""
        groups = f" in {experts['groups']} groups" if experts["groups"] != 1 else ""
        rows.append(
            (
                "experts",
                f"{experts['count']}{groups} of width {experts['width']}, {experts['per_token']} per token{shared}; "
                f"{experts['dense_layers']} layer{'' if experts['dense_layers'] == 1 else 's'} without",
            )
        )
    rows += [
        ("parameters", f"{found['parameters']:,}" + (", head tied" if network["tied_head"] else "")),
        ("files", files),
        ("loaded", f"dtype {loaded['dtype']}, weights {loaded['weights']}, on {loaded['device']}"),
        *([("", "small batches recorded as CUDA graphs")] if loaded["cuda_graphs"] else []),
        ("vocabulary", f"{found['vocabulary']:,} tokens, at most {found['positions']:,} positions"),
        ("block size", _sourced(found["block_size"])),
        ("mask", _sourced(found["mask"])),
        ("ends", _sourced(found["ends"])),
        ("template", f"{found['template']} ({_CHAT[found['chat_template']]})"),
        ("tokenizer", "tokenizer.json" if found["tokenizer"] else "NONE that the gate can use: prompts cannot be read"),
        ("", ""),
        (
            "memory",
            f"for batch_size {memory['batch_size']}, prompts of {memory['prompt_tokens']:,} tokens, "
            f"{memory['new_tokens']:,} new",
        ),
        ("  weights", f"{_size(memory['weights'])} (and {_size(memory['loading'])} while loading)"),
        ("  cache", f"{_size(memory['cache'])}: {_size(memory['position'])} a token, {_size(memory['page'])} a page"),
        ("  states", f"{_size(memory['states'])} of states and their answers, about"),
        ("  working", f"{_size(memory['working'])} in a step, about"),
        ("  total", _total(memory, found["servable"])),
        ("", ""),
        ("knobs", ""),
    ]
    return rows + [(f"  {name}", _value(value)) for name, value in found["knobs"].items()]


def _total(memory: Mapping[str, Any], servable: bool) -> str:
    if memory["free"] is None:
        return f"{_size(memory['total'])}; what is free cannot be told"
    suffices = "fits" if servable else "fits, but the model does NOT take such requests"
    fits = suffices if memory["fits"] else "does NOT fit: lower --batch-size, or --weights"
    return f"{_size(memory['total'])} of {_size(memory['free'])} free; {fits}"


def _sourced(found: Mapping[str, Any]) -> str:
    return f"{_value(found['value'])} ({found['from']})"


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
