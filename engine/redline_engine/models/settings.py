"""Values of a ``config.json``, and what is wrong with them: all faults are collected before one is raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST = 1e30  # finite in float32


class Settings:
    """A configuration, and what is wrong with it; a key that is null counts as missing.

    A value that is missing or not allowed is replaced by one that is, so that reading goes on. `sound` tells whether a
    key was right, so that nothing is said of others that follows from a value made up here.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.faults: list[str] = []
        self._unsound: set[str] = set()

    def sound(self, *names: str) -> bool:
        """Were all of these right."""
        return self._unsound.isdisjoint(names)

    def complain(self, name: str, fault: str) -> None:
        """Note a fault of a key."""
        self.faults.append(fault)
        self._unsound.add(name)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of some keys that have a value."""
        return {name: self.values[name] for name in names if self.values.get(name) is not None}

    def agreed(self, name: str, said: Mapping[str, Any]) -> Any:
        """First of the values that several keys give for one thing, after a complaint if another differs; else None."""
        if not said:
            return None
        (first, value), *others = said.items()
        for other, another in others:
            if another != value:
                fault = f"{first} {_plain(value)} contradicts {other} {_plain(another)}; correct one of the two"
                self.complain(name, fault)
                break
        return value

    def whole(self, name: str, least: int = 1, default: int | None = None, most: int = 2**24) -> int:
        """Read a whole number."""
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            self.complain(name, f"no {name}")
        elif not isinstance(value, int) or isinstance(value, bool) or value < least:
            self.complain(name, f"{name}: {value!r} is not allowed; it must be a whole number of at least {least}")
        elif value > most:
            self.complain(name, f"{name}: {value} is not allowed; it must be at most {most}")
        else:
            return value
        return max(least, 1)

    def number(self, name: str, value: Any) -> float:
        """Check a number above 0."""
        if value is None:
            self.complain(name, f"no {name}")
        elif not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _MOST:
            self.complain(name, f"{name}: {value!r} is not allowed; it must be a number above 0, at most {_MOST:g}")
        else:
            return float(value)
        return 1.0

    def agreed_number(self, name: str, said: Mapping[str, Any]) -> float:
        """Check a number above 0 that several keys may give; each of them must be one, and the same."""
        read = {key: self.number(key, value) for key, value in said.items()} or {name: self.number(name, None)}
        if not self.sound(*read):
            self._unsound.add(name)
        return float(self.agreed(name, read)) if self.sound(name) else 1.0

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Read true or false."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            self.complain(name, f"no {name}" if value is None else f"{name}: {value!r} is not true or false")
        return value is True


def _plain(value: Any) -> str:
    """A value as it would be written; floats without their needless zeros."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)[:60]
