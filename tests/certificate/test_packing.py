"""Outcomes are packed into a certificate and come back as they were, and nothing else comes back."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from made_outcomes import make_outcomes

from pytest_redline.certificate_schema import PackedOutcomes
from pytest_redline.errors import CertificateError
from pytest_redline.outcomes import Outcomes
from pytest_redline.packing import pack, unpack


@st.composite
def any_outcomes(draw):
    m, n = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    texts = st.text(max_size=8)
    numbers = st.one_of(
        st.floats(0, allow_nan=False, allow_infinity=False),
        st.integers(0, 2**64 - 1).map(float),
        st.sampled_from([0.0, 255.0, 256.0, 65535.0, 65536.0, 2.0**32 - 1, 2.0**32, 2.0**53, 2.0**64, 1.7e308]),
    )
    return Outcomes(
        tuple(draw(st.lists(texts, min_size=m, max_size=m, unique=True))),
        tuple(draw(st.lists(texts, min_size=n, max_size=n, unique=True))),
        draw(npst.arrays(np.bool_, (m, n))),
        {name: draw(npst.arrays(np.float64, (m, n), elements=numbers)) for name in draw(st.sets(texts, max_size=2))},
        draw(st.one_of(st.none(), st.lists(texts, min_size=n, max_size=n).map(tuple))),
        draw(st.one_of(st.none(), npst.arrays(np.uint64, (m, n)))),
    )


@given(any_outcomes())
@settings(max_examples=80, deadline=None)
def test_unpacking_restores_what_was_packed(outcomes):
    packed = pack(outcomes)
    again = unpack(PackedOutcomes.model_validate_json(packed.model_dump_json()), outcomes.configurations)
    assert (again.configurations, again.prompts, again.groups) == (
        outcomes.configurations,
        outcomes.prompts,
        outcomes.groups,
    )
    assert np.array_equal(again.correct, outcomes.correct)
    assert again.correct.dtype == np.bool_
    assert again.measures.keys() == outcomes.measures.keys()
    for name, values in outcomes.measures.items():
        assert np.array_equal(again.measures[name], values)
        assert again.measures[name].dtype == np.float64
    if outcomes.outputs is None:
        assert again.outputs is None
    else:
        assert np.array_equal(again.outputs, outcomes.outputs)
        assert again.outputs.dtype == np.uint64
    assert pack(again) == packed


def test_whole_numbers_are_packed_in_as_few_bytes_as_they_need():
    for largest, kind in [(255, "u1"), (256, "u2"), (65_536, "u4"), (2**32, "u8")]:
        outcomes = make_outcomes({"a": [1, 0]}, measures={"tokens": {"a": [0, largest]}})
        assert pack(outcomes).measures["tokens"]["a"].startswith(f"{kind}:")
    assert pack(make_outcomes({"a": [1]}, measures={"x": {"a": [0.5]}})).measures["x"]["a"].startswith("f8:")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "u1",
        "u1:",
        "u3:" + base64.b64encode(zlib.compress(b"\0\0")).decode(),
        "u1:" + base64.b64encode(zlib.compress(b"\0")).decode(),
        "u1:" + base64.b64encode(zlib.compress(b"\0\0\0")).decode(),
        "u2:" + base64.b64encode(zlib.compress(b"\0\0\0")).decode(),
        "u1:" + base64.b64encode(b"\0\0").decode(),
        "u1:" + base64.b64encode(zlib.compress(b"\0\0")).decode() + "é",
        *(
            "f8:" + base64.b64encode(zlib.compress(np.array([1.0, odd]).tobytes())).decode()
            for odd in (np.nan, np.inf, -1.0)
        ),
    ],
)
def test_numbers_that_packing_never_writes_are_refused(text):
    packed = pack(make_outcomes({"a": [1, 0]}, measures={"tokens": {"a": [1, 2]}}))
    with pytest.raises(CertificateError, match="outcomes: cannot be unpacked"):
        unpack(packed.model_copy(update={"measures": {"tokens": {"a": text}}}), ("a",))


@pytest.mark.parametrize("ids", ["x", {"a": 1}, ["a", 1], ["a"], ["a", "b", "c"] * 9])
def test_ids_that_packing_never_writes_are_refused(ids):
    packed = pack(make_outcomes({"a": [1, 0]}, measures={"tokens": {"a": [1, 2]}}))
    text = base64.b64encode(zlib.compress(json.dumps(ids).encode())).decode()
    with pytest.raises(CertificateError, match="outcomes: cannot be unpacked"):
        unpack(packed.model_copy(update={"prompts": text}), ("a",))
