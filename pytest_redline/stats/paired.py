"""The exact test that tells a candidate that should change nothing from the run-to-run noise of the reference.

Candidate and replicate (the reference served a second time) answer the same prompts, so their counts of violations are
paired. A test for two independent samples on the two counts ignores that and almost never rejects (size 0.003 to 0.007
at a nominal 0.05).
"""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pytest_redline.stats.checks import Counts, whole


@overload
def mcnemar(b: int, c: int) -> float: ...
@overload
def mcnemar(b: NDArray[np.int64], c: Counts) -> NDArray[np.float64]: ...


def mcnemar(b: Counts, c: Counts) -> float | NDArray[np.float64]:
    """Return how likely a candidate that is as good as the replicate comes out worse by as much as it did.

    Parameters
    ----------
    b
        Prompts on which the replicate is right and the candidate wrong, at least 0; an int or an array, any shape.
    c
        Prompts on which it is the other way round, at least 0; an int, or an array that broadcasts against b.

    Returns
    -------
    p
        ``P(Bin(b + c, 1/2) >= b)``, 1 where nothing differs; a float where both are ints, else float64.

    Raises
    ------
    ValueError
        b or c is not of integer type, or negative.

    Notes
    -----
    Where candidate and replicate are exchangeable on every prompt, each prompt on which exactly one of them is wrong is
    as likely to be the one as the other, so that p is super-uniform given b + c: one-sided, exact, not randomised.

    Source: McNemar (1947), exact conditional form.

    Examples
    --------
    >>> round(mcnemar(9, 1), 4), mcnemar(0, 0), mcnemar(2, 2)
    (0.0107, 1.0, 0.6875)
    """
    worse, better = np.broadcast_arrays(whole("b", b), whole("c", c))
    for name, values in (("b", worse), ("c", better)):
        if (values < 0).any():
            raise ValueError(f"{name}={int(values[values < 0].flat[0])}: a count is 0 or more")
    some = worse > 0
    p: NDArray[np.float64] = np.where(some, special.betainc(np.where(some, worse, 1), better + 1.0, 0.5), 1.0)
    return float(p) if p.ndim == 0 else p
