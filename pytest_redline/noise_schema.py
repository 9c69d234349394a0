"""What a certificate holds of the reference's second run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pytest_redline.closed import Bounds, Closed, Count


class NoiseRow(Closed):
    """One configuration against the second run of the reference, on prompts that the reference gets right.

    ``worse`` counts those on which the configuration alone of the two is wrong, ``better`` those on which the second
    run alone is. More generally, they count the prompts, or clusters where their means are tested, on which one of the
    two loses more than the other. p is that of the exact one-sided McNemar (sign) test. A configuration that is
    ``lossless`` by declaration fails where p is at most the ``level``.
    """

    label: str
    worse: Count
    better: Count
    p: float
    lossless: bool


class NoiseResult(Closed):
    """The reference against itself: its second run, which is no configuration of the grid, is called ``label``.

    ``k`` counts the prompts on which the second run loses against the first, ``gained`` those on which it wins;
    ``rate`` is its mean loss, k/n where a verdict is right or wrong, and ``standard_error`` that of this rate. Where
    cluster means or scores are tested there is no exact ``risk_interval``. ``texts_differ`` counts prompts with another
    answer text, where texts are known. ``level`` is delta over the number of configurations declared lossless, null
    without any.
    """

    label: str
    k: Count
    n: Annotated[int, Field(gt=0)]
    gained: Count
    rate: float
    standard_error: float
    risk_interval: Bounds | None
    net_accuracy: float
    texts_differ: Count | None
    level: float | None
    configurations: list[NoiseRow]

    @property
    def worse_than_noise(self) -> tuple[str, ...]:
        """Labels that are declared lossless and whose p is at most the level."""
        level = self.level or 0.0
        return tuple(row.label for row in self.configurations if row.lossless and row.p <= level)


class PackedReplicate(Closed):
    """Verdicts, texts and scores of the reference's second run, packed as those of configurations are."""

    correct: str
    outputs: str | None
    scores: str | None
