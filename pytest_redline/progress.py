"""What a source that serves tells while it does; ``report/progress.py`` shows it."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_redline.store import Generation


class Progress:
    """What is told of a run while it goes on; this one tells nothing."""

    def start(self, labels: Sequence[str], reference: str, prompts: int, at_most: bool = False) -> None:
        """Serving begins: so many prompts for each configuration, or as many at most."""

    def serving(self, labels: Sequence[str]) -> None:
        """From now on one model serves these together, and no others until it is called again."""

    def generation(self, label: str, prompt: int, right: bool, generation: Generation, stored: bool) -> None:
        """One generation is known, from the store or just served."""

    def forwards(self, run: int) -> None:
        """So many forwards were run since serving began, by all models."""
