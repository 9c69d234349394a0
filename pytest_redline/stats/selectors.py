"""Rules that choose a configuration from calibration outcomes: the certificate's own, and what others would do.

All of them look at many samples of the same grid at once. A rule marks configurations as allowed; `deploy` then takes
the fastest of those. The reference is allowed by every rule, so that nothing slower than it is ever deployed.

Of these only REDLINE and BONF promise anything about the joint risk without an order of the configurations, which must
be fixed before the data, and only they and FIXSEQ at all. NETHOLM-* promise something about another risk, the loss of
net accuracy, which a configuration can keep while it breaks much and mends as much.

Source: the selectors of the paper's Tables 14 and 15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pytest_redline.stats.bounded import BETTING_DELTA, betting, hoeffding, hoeffding_bentkus
from pytest_redline.stats.checks import inside, whole
from pytest_redline.stats.multiplicity import holm
from pytest_redline.stats.risk import binomial_tail

_AT_ONCE: Final = 1 << 18  # net losses that the betting rule looks at in one go, so that they stay in the cache


@dataclass(frozen=True)
class Samples:
    """What S samples of calibration prompts say of m configurations.

    Parameters
    ----------
    n
        Prompts in each sample, at least 1.
    lost
        ``[S, m]`` int64: prompts that the reference gets right and the configuration wrong, the paper's k.
    gained
        ``[S, m]`` int64: prompts that the reference gets wrong and the configuration right.
    ordered
        ``[m, S, n]`` int8: the net loss of each prompt, +1 lost, -1 gained, in the random order in which it was drawn;
        None where no rule looks at it.
    """

    n: int
    lost: NDArray[np.int64]
    gained: NDArray[np.int64]
    ordered: NDArray[np.int8] | None = None

    def __post_init__(self) -> None:
        lost, gained = whole("lost", self.lost), whole("gained", self.gained)
        if lost.ndim != 2 or lost.shape != gained.shape:
            raise ValueError(f"lost has shape {lost.shape} and gained {gained.shape}; both are [S, m]")
        if whole("n", self.n) < 1 or (lost < 0).any() or (gained < 0).any() or (lost + gained > self.n).any():
            raise ValueError(f"lost and gained of n={self.n} prompts lie between 0 and n together")

    @property
    def net(self) -> NDArray[np.int64]:
        """``[S, m]`` sum of the net losses."""
        return self.lost - self.gained


@dataclass(frozen=True)
class Setting:
    """What the rules are given beside the samples.

    Parameters
    ----------
    alpha, delta
        Risk budget, and failure probability of the whole grid.
    reference
        Index of the reference.
    gain
        ``[m]`` gain of each configuration over the reference, 0 for the reference, NaN where it is not known. It comes
        from all prompts, not from a sample: cost is known far better than risk.
    """

    alpha: float
    delta: float
    reference: int
    gain: NDArray[np.float64]

    def __post_init__(self) -> None:
        inside("alpha", self.alpha)
        inside("delta", self.delta)
        if self.gain.ndim != 1 or not 0 <= self.reference < self.gain.size or self.gain[self.reference] != 0:
            raise ValueError(f"reference={self.reference} is not the row of gain {self.gain.tolist()} that has gain 0")


@dataclass(frozen=True)
class Selector:
    """A rule by name.

    Parameters
    ----------
    name
        As the paper calls it, in capitals.
    allowed
        Returns ``[S, m]`` bool.
    ordered
        Does it look at `Samples.ordered`.
    """

    name: str
    allowed: Callable[[Samples, Setting], NDArray[np.bool_]]
    ordered: bool = False


def deploy(allowed: NDArray[np.bool_], setting: Setting) -> NDArray[np.int64]:
    """Return which configuration each sample deploys: the fastest allowed one, the first listed on ties.

    Parameters
    ----------
    allowed
        ``[..., m]`` bool.
    setting
        Gains and reference; the reference is always allowed, and what has no known gain is never deployed.

    Returns
    -------
    deployed
        ``[...]`` int64, indices of configurations.

    Examples
    --------
    >>> setting = Setting(0.1, 0.1, reference=1, gain=np.array([0.2, 0.0, -0.1, np.nan]))
    >>> deploy(np.array([[True, True, True, True], [False, False, True, True]]), setting).tolist()
    [0, 1]
    """
    known = np.where(allowed & ~np.isnan(setting.gain), setting.gain, -np.inf)
    known[..., setting.reference] = 0.0
    best: NDArray[np.int64] = known.argmax(axis=-1).astype(np.int64)
    return best


def selector(name: str) -> Selector:
    """Return the selector of a name.

    Parameters
    ----------
    name
        One of `NAMES`, where MEAN-t stands for MEAN-0, MEAN-5 and so on: the tolerance in points of accuracy.

    Raises
    ------
    ValueError
        There is none of this name.

    Examples
    --------
    >>> selector("MEAN-10").name
    'MEAN-10'
    """
    points = name.removeprefix("MEAN-")
    if points != name and points.isascii() and points.isdigit() and len(points) <= 3:
        return mean_within(int(points))
    if name not in _FIXED:
        raise ValueError(f"{name!r} is no selector; there are {', '.join(NAMES)}")
    return _FIXED[name]


def mean_within(points: int) -> Selector:
    """Return the rule that allows a mean loss of accuracy of at most so many points, whatever the budget."""
    return Selector(f"MEAN-{points}", lambda samples, _: samples.net / samples.n <= points / 100)


def _redline(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    """Holm on the exact p-values, over all m rows: what the gate does."""
    return holm(_exact(samples, setting), setting.delta)


def _bonferroni(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    """Each exact p-value against delta/m, m counting the reference as everywhere."""
    passes: NDArray[np.bool_] = _exact(samples, setting) <= setting.delta / samples.lost.shape[1]
    return passes


def _fixed_sequence(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    """From the reference upwards in speed, each at delta, until the first that fails; slower ones are left out."""
    faster = np.flatnonzero(setting.gain >= 0)  # not those of unknown gain
    upwards = sorted(faster, key=lambda row: (setting.gain[row], row != setting.reference))
    passes = _exact(samples, setting)[:, upwards] <= setting.delta
    allowed = np.zeros(samples.lost.shape, dtype=np.bool_)
    allowed[:, upwards] = np.logical_and.accumulate(passes, axis=1)
    return allowed


def _uncorrected(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    """Each exact p-value against delta, as if it were alone."""
    passes: NDArray[np.bool_] = _exact(samples, setting) <= setting.delta
    return passes


def _plug_in(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    """The measured risk itself against the budget."""
    passes: NDArray[np.bool_] = samples.lost / samples.n <= setting.alpha
    return passes


def _mean_interval(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    """Upper end of a normal interval for the mean loss of accuracy, at confidence 1 - delta, each for itself."""
    n = samples.n
    mean = samples.net / n
    variance = (samples.lost + samples.gained - n * mean**2) / max(n - 1, 1)
    passes: NDArray[np.bool_] = mean + special.ndtri(1 - setting.delta) * np.sqrt(np.maximum(variance, 0) / n) <= (
        setting.alpha
    )
    return passes


def _net_hoeffding(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    p = hoeffding(samples.n + samples.net, samples.n, _net_budget(setting), unit=2)
    return holm(p, setting.delta)


def _net_hoeffding_bentkus(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    budget, n = _net_budget(setting), samples.n
    p = _by_count(lambda net: hoeffding_bentkus(n + net, n, budget, unit=2), samples.net)
    return holm(p, setting.delta)


def _net_betting(samples: Samples, setting: Setting) -> NDArray[np.bool_]:
    if samples.ordered is None:
        raise ValueError("ordered is None; betting needs the net losses in their random order")
    budget = _net_budget(setting)
    p = np.empty(samples.lost.shape)
    rows = max(1, _AT_ONCE // samples.n)
    for column, losses in enumerate(samples.ordered):
        for start in range(0, len(losses), rows):
            part = slice(start, start + rows)
            p[part, column] = betting((losses[part] + 1) / 2, budget, BETTING_DELTA)
    return holm(p, setting.delta)


def _net_budget(setting: Setting) -> float:
    """The budget of (D + 1)/2, which lies between 0 and 1, where that of the net loss D is alpha."""
    return (1 + setting.alpha) / 2


def _exact(samples: Samples, setting: Setting) -> NDArray[np.float64]:
    """``[S, m]`` exact p-values."""
    return _by_count(lambda k: binomial_tail(k, samples.n, setting.alpha), samples.lost)


def _by_count(
    p_value: Callable[[NDArray[np.int64]], NDArray[np.float64]], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Compute each distinct count once: there are few, and samples by the thousand."""
    distinct, places = np.unique(counts, return_inverse=True)
    p: NDArray[np.float64] = p_value(distinct)[places].reshape(counts.shape)
    return p


_FIXED: Final = {
    each.name: each
    for each in (
        Selector("REDLINE", _redline),
        Selector("BONF", _bonferroni),
        Selector("FIXSEQ", _fixed_sequence),
        Selector("UNCORR", _uncorrected),
        Selector("PLUGIN", _plug_in),
        Selector("NETHOLM-H", _net_hoeffding),
        Selector("NETHOLM-HB", _net_hoeffding_bentkus),
        Selector("NETHOLM-WSR", _net_betting, ordered=True),
        Selector("MEANCI", _mean_interval),
    )
}
NAMES: Final[Sequence[str]] = (*_FIXED, "MEAN-t")
