"""How a grid spends less than a full run of every configuration, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass

EVERY = 32  # prompts between two decisions
EARLY = 0.2  # share of the level for all looks but the last


@dataclass(frozen=True)
class DeclaredLooks:
    """Looks as a grid file declares them: at these sizes, or so many at equal distances; ``early`` of the level."""

    at: tuple[int, ...] | None = None
    number: int = 0
    early: float = EARLY


@dataclass(frozen=True)
class Stopping:
    """When a configuration is not served further.

    Parameters
    ----------
    curtail
        A candidate that can no longer be certified is stopped.
    looks
        A candidate that is certified at a look, or surely will be at a later one, is stopped.
    where_reference_right
        Candidates are served only where the reference is right.
    every
        Prompts between two decisions.
    """

    curtail: bool = True
    looks: DeclaredLooks | None = None
    where_reference_right: bool = False
    every: int = EVERY
