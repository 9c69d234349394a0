"""Outcomes as short texts, so that a certificate can be recomputed from itself.

Texts are zlib-compressed and base64-coded. Verdicts are one bit a prompt (``numpy.packbits``, most significant bit
first, prompts in the order of the packed ids); numbers are little-endian and start with their type: ``u1:`` to
``u8:`` unsigned integers, ``f8:`` doubles. Lists of ids and groups are JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_redline.certificate_schema import PackedOutcomes
from pytest_redline.errors import CertificateError
from pytest_redline.noise_schema import PackedReplicate
from pytest_redline.outcomes import Outcomes, Replicate

_LARGE = 1 << 16  # bytes from which speed of packing matters more than a few percent of size
_MOST_TEXT = 1 << 28  # bytes of a list of ids or groups
_UNREADABLE = (ValueError, KeyError, TypeError, RecursionError, zlib.error, binascii.Error)
_ODD_SCORES = "scores that are over 1, or not 1 where a verdict is right"
_INTEGERS = ("u1", "u2", "u4", "u8")


def pack(outcomes: Outcomes, replicate: Replicate | None = None) -> PackedOutcomes:
    """Pack outcomes; ``unpack`` and ``unpack_replicate`` restore them exactly."""
    labels = outcomes.configurations
    return PackedOutcomes(
        prompts=_text(list(outcomes.prompts)),
        groups=None if outcomes.groups is None else _text(list(outcomes.groups)),
        correct={label: _verdicts(row) for label, row in zip(labels, outcomes.correct, strict=True)},
        measures={
            name: {label: _numbers(row) for label, row in zip(labels, values, strict=True)}
            for name, values in sorted(outcomes.measures.items())
        },
        outputs=None
        if outcomes.outputs is None
        else {label: _numbers(row) for label, row in zip(labels, outcomes.outputs, strict=True)},
        clusters=None if outcomes.clusters is None else _text(list(outcomes.clusters)),
        scores=None
        if outcomes.scores is None
        else {label: _numbers(row) for label, row in zip(labels, outcomes.scores, strict=True)},
        known=None
        if outcomes.known is None
        else {label: _verdicts(row) for label, row in zip(labels, outcomes.known, strict=True)},
        order=None if outcomes.order is None else _numbers(np.array(outcomes.order)),
        replicate=None
        if replicate is None
        else PackedReplicate(
            correct=_verdicts(replicate.correct),
            outputs=None if replicate.outputs is None else _numbers(replicate.outputs),
            scores=None if replicate.scores is None else _numbers(replicate.scores),
        ),
    )


def unpack_replicate(packed: PackedReplicate, n: int) -> Replicate:
    """Restore the second run of the reference on n prompts.

    Raises
    ------
    CertificateError
        When a text is not what ``pack`` writes, or its length contradicts the number of prompts.
    """
    try:
        correct = _bits(packed.correct, n)
        outputs = None if packed.outputs is None else _array(packed.outputs, n).astype(np.uint64)
        scores = None if packed.scores is None else _array(packed.scores, n).astype(np.float64)
        if scores is not None and ((scores > 1).any() or not np.array_equal(scores == 1, correct)):
            raise ValueError(_ODD_SCORES)
        return Replicate(correct, outputs, scores)
    except _UNREADABLE as error:
        raise CertificateError(f"outcomes.replicate: cannot be unpacked ({error})") from None


def unpack(packed: PackedOutcomes, labels: tuple[str, ...]) -> Outcomes:
    """Restore outcomes.

    Raises
    ------
    CertificateError
        When a text is not what ``pack`` writes, or its length contradicts the number of prompts.
    """
    try:
        prompts = _list(packed.prompts)
        groups = None if packed.groups is None else _list(packed.groups)
        clusters = None if packed.clusters is None else _list(packed.clusters)
        n = len(prompts)
        if n == 0 or len(set(prompts)) < n:
            raise ValueError("no prompts, or one of them twice")
        if groups is not None and len(groups) != n:
            raise ValueError("another number of groups than of prompts")
        if clusters is not None and len(clusters) != n:
            raise ValueError("another number of clusters than of prompts")
        rows = [_bits(packed.correct[label], n) for label in labels]
        measures = {
            name: np.stack([_array(values[label], n).astype(np.float64) for label in labels])
            for name, values in packed.measures.items()
        }
        outputs = (
            None
            if packed.outputs is None
            else np.stack([_array(packed.outputs[label], n).astype(np.uint64) for label in labels])
        )
        scores = (
            None
            if packed.scores is None
            else np.stack([_array(packed.scores[label], n).astype(np.float64) for label in labels])
        )
        if scores is not None and ((scores > 1).any() or not np.array_equal(scores == 1, np.stack(rows))):
            raise ValueError(_ODD_SCORES)
        known = None if packed.known is None else np.stack([_bits(packed.known[label], n) for label in labels])
        order = None if packed.order is None else tuple(_array(packed.order, n).astype(np.int64).tolist())
        if order is not None and sorted(order) != list(range(n)):
            raise ValueError("the order is not one of the prompts")
        expected = set(labels)
        for name, keys in (
            ("correct", set(packed.correct)),
            *((name, set(values)) for name, values in packed.measures.items()),
            *([("outputs", set(packed.outputs))] if packed.outputs is not None else []),
            *([("scores", set(packed.scores))] if packed.scores is not None else []),
            *([("known", set(packed.known))] if packed.known is not None else []),
        ):
            if keys != expected:
                raise ValueError(f"{name} has other labels than the configurations")
    except _UNREADABLE as error:
        raise CertificateError(f"outcomes: cannot be unpacked ({error})") from None
    return Outcomes(
        labels,
        tuple(prompts),
        np.stack(rows),
        measures,
        None if groups is None else tuple(groups),
        outputs,
        clusters=None if clusters is None else tuple(clusters),
        scores=scores,
        known=known,
        order=order,
    )


def _coded(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1 if len(data) >= _LARGE else 6)).decode("ascii")


def _decoded(text: str, most: int) -> bytes:
    """Decode a text to at most so many bytes: what it unpacks to is not known from its length."""
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(base64.b64decode(text.encode("ascii"), validate=True), most + 1)
    if len(data) > most or not unpacker.eof or unpacker.unused_data:
        raise ValueError("more or fewer bytes than a packed text holds")
    return data


def _text(values: list[str]) -> str:
    return _coded(json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode("ascii"))


def _list(text: str) -> list[str]:
    values = json.loads(_decoded(text, _MOST_TEXT))
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("not a list of texts")
    return values


def _verdicts(row: NDArray[np.bool_]) -> str:
    return _coded(np.packbits(row).tobytes())


def _bits(text: str, n: int) -> NDArray[np.bool_]:
    data = np.frombuffer(_decoded(text, (n + 7) // 8), dtype=np.uint8)
    if len(data) != (n + 7) // 8:
        raise ValueError(f"{len(data)} bytes of verdicts for {n} prompts")
    return np.unpackbits(data, count=n).astype(np.bool_)


def _numbers(row: NDArray[Any]) -> str:
    for kind in _INTEGERS:
        small = row.astype(f"<{kind}") if int(row.max()) <= np.iinfo(kind).max else None
        if small is not None and np.array_equal(small, row):
            return f"{kind}:{_coded(small.tobytes())}"
    return f"f8:{_coded(row.astype('<f8').tobytes())}"


def _array(text: str, n: int) -> NDArray[Any]:
    kind, _, coded = text.partition(":")
    if kind not in (*_INTEGERS, "f8"):
        raise ValueError(f"unknown type {kind!r} of numbers")
    values = np.frombuffer(_decoded(coded, n * int(kind[1])), dtype=f"<{kind}")
    if len(values) != n:
        raise ValueError(f"{len(values)} numbers for {n} prompts")
    if kind == "f8" and not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError("a number that is negative or not finite")
    return values
