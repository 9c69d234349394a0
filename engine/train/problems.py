"""Grade-school word problems with worked steps, made by a seeded generator.

A problem is a few sentences about one or two people, a question, and an answer that works it out: one equation per
step, each in a phrasing drawn at random, then ``#### N``. Random phrasing keeps a model unsure where a step starts, so
that a confidence threshold has something to decide. Some templates have parts that do not need each other (the purses
of two people, the lines of a bill), so that blocks of an answer can be decoded side by side.

Problem number ``i`` of a seed is always the same, in every process. Which split it belongs to is decided by a hash of
its template and numbers, names and objects left out: two problems that differ in names only are in the same split, and
no prompt is in two splits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import Literal

Split = Literal["train", "pool", "test"]
Group = Literal["easy", "hard"]

NAMES = (
    "Tom",
    "Anna",
    "Ben",
    "Eva",
    "Max",
    "Lea",
    "Sam",
    "Mia",
    "Leo",
    "Ida",
    "Jan",
    "Zoe",
    "Paul",
    "Nora",
    "Finn",
    "Rosa",
)
OBJECTS = (
    "pens",
    "apples",
    "books",
    "cards",
    "shells",
    "stamps",
    "stones",
    "beads",
    "eggs",
    "cakes",
    "flowers",
    "marbles",
)
HOLDERS = ("boxes", "bags", "packs")
LARGEST = 299  # of every value in an answer
HARD_STEPS = 4  # equations from which on a problem is hard; a distractor makes any problem hard


@dataclass(frozen=True)
class Problem:
    """A word problem.

    Parameters
    ----------
    prompt
        Sentences and question; ends with a question mark.
    answer
        Worked steps and ``#### N``.
    result
        The number ``N``.
    group
        "easy" or "hard".
    key
        Template and numbers: equal for problems that differ in names or phrasing only.
    """

    prompt: str
    answer: str
    result: int
    group: Group
    key: str

    @property
    def split(self) -> Split:
        """Where the problem belongs: 4 % "test", 8 % "pool" (calibration), the rest "train"."""
        share = int.from_bytes(blake2b(self.key.encode(), digest_size=4).digest()) % 100
        return "test" if share < 4 else "pool" if share < 12 else "train"


class _Draft:
    """A problem in the making: sentences, steps and numbers, in order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = rng.sample(NAMES, 3)
        self.objects = rng.sample(OBJECTS, 3)
        self.sentences: list[str] = []
        self.question = ""
        self.steps: list[str] = []
        self.signature: list[str] = []

    def number(self, low: int, high: int) -> int:
        """Draw a number of the problem."""
        value = self.rng.randint(low, high)
        self.signature.append(str(value))
        return value

    def pick(self, *options: str) -> str:
        """Draw a phrase; not part of the problem's key."""
        return self.rng.choice(options)

    def choose(self, *options: str) -> str:
        """Draw what happens; part of the problem's key."""
        value = self.rng.choice(options)
        self.signature.append(value)
        return value

    def step(self, left: int, sign: str, right: int, *phrasings: str) -> int:
        """Add an equation to the answer, in one of the phrasings (``{}`` is the equation), and return its value."""
        value = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[sign]
        equation = f"{left}{sign}{right}={value}"
        self.steps.append(self.pick("{}.", "So {}.", *phrasings).format(equation))
        return value

    def product(self, left: int, right: int) -> int:
        """Add an equation for ``left`` times ``right``."""
        return self.step(left, "*", right, "That is {}.", "First {}.")

    def total(self, left: int, sign: str, right: int, who: str, what: str) -> int:
        """Add an equation whose value is what somebody has."""
        return self.step(left, sign, right, f"{who} has {{}}.", f"Now {{}} {what}.", "That makes {}.")


class _MisfitError(Exception):
    """The drawn numbers leave the range; draw again."""


def _change(draft: _Draft, who: str, pronoun: str, what: str, value: int, simple: bool = False) -> int:
    """Let somebody's count change once; returns the new count."""
    kinds = ["gain", "lose"] if simple else ["gain", "lose", "gain boxes", "lose boxes", "times"]
    kind = draft.choose(*kinds)
    other = draft.names[2]
    if kind == "gain":
        more = draft.number(2, 99)
        act = draft.pick("buys {} more", "finds {} more", f"gets {{}} from {other}", "makes {} more")
        draft.sentences.append(f"{pronoun} {act.format(more)}.")
        return draft.total(value, "+", more, who, what)
    if kind == "lose":
        if value < 5:
            raise _MisfitError
        less = draft.number(2, min(99, value - 2))
        act = draft.pick("sells {}", "loses {}", f"gives {{}} to {other}", "breaks {}")
        draft.sentences.append(f"{pronoun} {act.format(less)}.")
        return draft.total(value, "-", less, who, what)
    if kind == "times":
        times = draft.number(2, 4)
        word = {2: "twice", 3: "three times", 4: "four times"}[times]
        draft.sentences.append(draft.pick(f"Later {who} has {word} as many.", f"A week later it is {word} as many."))
        return draft.total(value, "*", times, who, what)
    boxes, each, holder = draft.number(2, 9), draft.number(2, 12), draft.pick(*HOLDERS)
    act = draft.pick("buys", "gets") if kind == "gain boxes" else draft.pick("sells", "gives away")
    draft.sentences.append(f"{pronoun} {act} {boxes} {holder} of {each}.")
    moved = draft.product(boxes, each)
    if kind == "lose boxes" and value - moved < 1:
        raise _MisfitError
    return draft.total(value, "+" if kind == "gain boxes" else "-", moved, who, what)


def _chain(draft: _Draft) -> int:
    """One person, one count, one to three changes."""
    who, what = draft.names[0], draft.objects[0]
    value = draft.number(5, 99)
    draft.sentences.append(draft.pick(f"{who} has {value} {what}.", f"There are {value} {what} in the room of {who}."))
    for _ in range(draft.number(1, 3)):
        value = _change(draft, who, draft.pick(who, "Then " + who), what, value)
    draft.question = draft.pick(f"How many {what} does {who} have now?", f"How many {what} are there in the end?")
    return value


def _pair(draft: _Draft) -> int:
    """Two people whose counts change apart; their sum or difference is asked for."""
    what, values = draft.objects[0], []
    for who in draft.names[:2]:
        value = draft.number(5, 99)
        draft.sentences.append(f"{who} has {value} {what}.")
        if draft.number(0, 5):
            value = _change(draft, who, who, what, value)
        values.append(value)
    first, second = draft.names[:2]
    if not draft.steps:
        raise _MisfitError
    if draft.choose("sum", "difference") == "sum":
        draft.question = draft.pick(f"How many {what} do they have together?", f"How many {what} is that in all?")
        return draft.step(values[0], "+", values[1], "Together {}.", "In all {}.")
    if values[0] < values[1]:
        values.reverse()
        first, second = second, first
    if values[0] == values[1]:
        raise _MisfitError
    draft.question = f"How many more {what} does {first} have than {second}?"
    return draft.step(values[0], "-", values[1], "{} more.", "That leaves {}.")


def _bill(draft: _Draft) -> int:
    """Two or three lines of a bill; its total, or what is left of the money."""
    who, lines, total = draft.names[0], [], 0
    kinds = draft.number(2, 3)
    costs = []
    for what in draft.objects[:kinds]:
        pieces, price = draft.number(2, 9), draft.number(2, 12)
        lines.append(f"{pieces} {what} for {price} coins each")
        costs.append(draft.product(pieces, price))
    draft.sentences.append(f"{who} buys {', '.join(lines[:-1])} and {lines[-1]}.")
    total = costs[0]
    for cost in costs[1:]:
        total = draft.step(total, "+", cost, "In all {} coins.", "That makes {}.")
    if draft.choose("total", "left") == "total":
        draft.question = draft.pick(f"How many coins does {who} pay?", "How many coins is that in all?")
        return total
    if total > LARGEST - 10:
        raise _MisfitError
    money = draft.number(total + 1, min(LARGEST, total + 99))
    draft.sentences.insert(0, f"{who} has {money} coins.")
    draft.question = draft.pick(f"How many coins does {who} have left?", "How many coins are left?")
    return draft.total(money, "-", total, who, "coins")


def _pages(draft: _Draft) -> int:
    """Pages read at a pace, then some more; pages read, or pages left."""
    who = draft.names[0]
    days, pace, more = draft.number(2, 9), draft.number(2, 12), draft.number(2, 99)
    draft.sentences.append(
        draft.pick(
            f"{who} reads {pace} pages a day for {days} days.", f"For {days} days {who} reads {pace} pages a day."
        )
    )
    draft.sentences.append(draft.pick(f"Then {who} reads {more} pages.", f"On Sunday {who} reads {more} pages more."))
    read = draft.step(draft.product(days, pace), "+", more, "That makes {}.", f"{who} reads {{}} pages.")
    if draft.choose("read", "left") == "read":
        draft.question = f"How many pages does {who} read?"
        return read
    pages = draft.number(read + 2, min(LARGEST, read + 99))
    draft.sentences.insert(0, f"A book has {pages} pages.")
    draft.question = draft.pick("How many pages are left?", f"How many pages does {who} have left?")
    return draft.total(pages, "-", read, who, "pages")


def _split(draft: _Draft) -> int:
    """Things put into boxes of equal size and sold, perhaps beside money that was there."""
    who, what, holder = draft.names[0], draft.objects[0], draft.pick(*HOLDERS)
    boxes, each, price = draft.number(2, 12), draft.number(2, 9), draft.number(2, 9)
    draft.sentences.append(f"{who} puts {boxes * each} {what} into {holder} of {each}.")
    draft.sentences.append(f"{who} sells all {holder} for {price} coins each.")
    made = draft.product(draft.step(boxes * each, "/", each, f"{{}} {holder}.", "That is {}."), price)
    if draft.choose("made", "purse") == "made":
        draft.question = f"How many coins does {who} get?"
        return made
    purse = draft.number(2, 99)
    draft.sentences.append(f"{who} had {purse} coins before.")
    draft.question = f"How many coins does {who} have now?"
    return draft.total(purse, "+", made, who, "coins")


_TEMPLATES: tuple[Callable[[_Draft], int], ...] = (_chain, _chain, _pair, _pair, _pair, _bill, _bill, _pages, _split)


def _distract(draft: _Draft) -> None:
    """Put in a sentence that does not matter."""
    value = draft.rng.randint(6, 99)
    sentence = draft.pick(
        f"{draft.names[2]} has {value} {draft.objects[2]}.",
        f"{draft.names[0]} is {value} years old.",
        f"The bus takes {value} minutes.",
        f"It is {value} days until summer.",
    )
    draft.sentences.insert(draft.rng.randint(1, len(draft.sentences)), sentence)


def make_problem(seed: int | str, number: int) -> Problem:
    """Make problem `number` of a seed."""
    rng = random.Random(f"{seed}/{number}")
    while True:
        template, distracted = rng.choice(_TEMPLATES), rng.random() < 0.25
        draft = _Draft(rng)
        try:
            result = template(draft)
        except _MisfitError:
            continue
        if all(int(part) <= LARGEST for step in draft.steps for part in _numbers(step)):
            break
    group: Group = "hard" if distracted or len(draft.steps) >= HARD_STEPS else "easy"
    if distracted:
        _distract(draft)
    return Problem(
        prompt=" ".join([*draft.sentences, draft.question]),
        answer=" ".join([*draft.steps, f"#### {result}"]),
        result=result,
        group=group,
        key=f"{template.__name__} {' '.join(draft.signature)}",
    )


def _numbers(text: str) -> list[str]:
    return "".join(letter if letter.isdigit() else " " for letter in text).split()


def problems(seed: int | str, split: Split) -> Iterator[Problem]:
    """Yield the problems of a seed that belong to a split, without end; prompts may recur."""
    return (problem for problem in (make_problem(seed, number) for number in count()) if problem.split == split)


def distinct(seed: int | str, split: Split, size: int) -> list[Problem]:
    """Return the first `size` problems of a split whose keys differ from each other."""
    found: dict[str, Problem] = {}
    for problem in problems(seed, split):
        found.setdefault(problem.key, problem)
        if len(found) == size:
            return list(found.values())
    raise AssertionError


def read_result(text: str) -> int | None:
    """Return the number behind the last ``####`` of an answer, or None."""
    _, marker, tail = text.rpartition("####")
    digits = tail.strip()
    return int(digits) if marker and digits.isascii() and digits.isdigit() else None
