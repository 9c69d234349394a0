"""What can go wrong, and who can mend it.

::

    RedlineError                 base: its text is for the user, shown without a traceback
    ├── GridError                a grid file says something that cannot be carried out
    ├── OutcomesError            outcomes are missing, doubled, ambiguous or unreadable
    │   └── LoadError            a model cannot be loaded as asked
    ├── NothingCertifiableError  so few prompts that not even zero violations would certify anything
    ├── LedgerError              the record of statements is damaged, contradictory or cannot be written
    └── CertificateError         a certificate is unreadable, was changed, or contradicts its own outcomes

Anything else that escapes is a fault of Redline itself and ends in a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence


class RedlineError(Exception):
    """A mistake that the user can mend; holds one text per problem, all found in one go.

    Parameters
    ----------
    problems
        One sentence or two each: ``where: what was found; what is allowed; what to do``.
    """

    limit = 20  # beyond this many, the rest is counted instead of listed

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        shown = list(self.problems[: self.limit])
        if len(self.problems) > self.limit:
            shown.append(f"... and {len(self.problems) - self.limit:,} more of the kind")
        super().__init__("\n".join(shown))


class GridError(RedlineError):
    """A grid file says something that cannot be carried out; ``name`` is the grid's, where the file has one."""

    name: str | None = None


class OutcomesError(RedlineError):
    """Outcomes are missing, doubled, ambiguous or unreadable."""

    limit = 10  # they come in hundreds, and are mended at their source


class LoadError(OutcomesError):
    """A model cannot be loaded as asked; whoever answers right has no part in it."""


class NothingCertifiableError(RedlineError):
    """So few prompts that not even zero violations would certify anything."""


class LedgerError(RedlineError):
    """The record of statements is damaged or contradictory, cannot be written, or does not allow what is asked."""


class CertificateError(RedlineError):
    """A certificate is unreadable, was changed, or contradicts its own outcomes."""
