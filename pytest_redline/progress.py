"""What a source that serves tells while it does; ``report/progress.py`` shows it."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_redline.store import Generation


class Progress:
    """What is told of a run while it goes on; this one tells nothing."""

    def start(self, labels: Sequence[str], reference: str, prompts: int, at_most: bool = False) -> None:
        """Serving begins: so many prompts for each configuration, or as many at most."""

    def generation(self, label: str, prompt: int, right: bool, generation: Generation) -> None:
        """One generation is known, from the store or just served."""

    def forwards(self, run: int) -> None:
        """So many forwards were run by the present model in this session."""
