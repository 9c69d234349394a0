"""Knobs: every fault is found, all in one go, and what is read is echoed back."""

from __future__ import annotations

import dataclasses
import math

import pytest

from redline_engine.config import DecodeKnobs, KnobError, ModelSpec, Sampling


def faults(make, *args, **kwargs):
    with pytest.raises(KnobError) as caught:
        make(*args, **kwargs)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def test_all_faults_of_a_map_come_in_one_go():
    knobs = {"accept_treshold": 0.9, "buffer_size": 0, "semi_complete_threshold": 1.5, "top_k": 5, "zzz": 1}
    known = ", ".join(field.name for field in dataclasses.fields(DecodeKnobs))
    assert faults(DecodeKnobs.from_mapping, knobs) == (
        "accept_treshold: unknown knob; did you mean accept_threshold?",
        f"zzz: unknown knob; known are {known}",
        "buffer_size: 0 is not allowed; it must be a whole number from 1 to 64",
        "semi_complete_threshold: 1.5 is not allowed; it must be a number from 0 to 1",
        "top_k: nothing reads it while temperature is 0; remove it",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accept_threshold", math.nan),
        ("accept_threshold", "0.9"),
        ("accept_threshold", True),
        ("buffer_size", 2.0),
        ("max_new_tokens", 0),
        ("max_forwards", 0),
        ("schedule", "fast"),
        ("schedule", ["threshold"]),
        ("stop_tokens", [1, -1]),
        ("stop_tokens", 3),
        ("stop_strings", [""]),
        ("stop_strings", "text"),
        ("temperature", -1),
        ("seed", 2**63),
    ],
)
def test_a_value_out_of_range_is_named(name, value):
    (fault,) = [each for each in faults(DecodeKnobs.from_mapping, {name: value}) if "not allowed" in each]
    assert fault.startswith(f"{name}: ")


def test_the_constructor_checks_too():
    assert len(faults(DecodeKnobs, buffer_size=0, top_p=0.0)) == 2


@pytest.mark.parametrize(
    ("knobs", "unread"),
    [
        ({"buffer_size": 1, "semi_complete_threshold": 0.5, "add_block_threshold": 0.5}, 2),
        ({"schedule": "count", "accept_count": 2, "accept_threshold": 0.5}, 1),
        ({"schedule": "steps", "accept_count": 2}, 1),
        ({"denoising_steps": 4}, 1),
        ({"seed": 1, "top_p": 0.5}, 2),
    ],
)
def test_a_knob_that_nothing_reads_is_a_fault_but_not_as_a_default(knobs, unread):
    assert len(faults(DecodeKnobs.from_mapping, knobs)) == unread
    switches = {name: knobs[name] for name in ("buffer_size", "schedule") if name in knobs}
    DecodeKnobs.from_mapping(switches, defaults=knobs)


def test_effective_knobs_are_those_that_are_read():
    assert DecodeKnobs.from_mapping({"accept_threshold": 1, "buffer_size": 1}).effective() == {
        "block_size": None,
        "buffer_size": 1,
        "schedule": "threshold",
        "accept_threshold": 1.0,
        "max_new_tokens": 256,
        "max_forwards": None,
        "temperature": 0.0,
        "stop_tokens": (),
        "stop_strings": (),
    }
    drawn = DecodeKnobs(schedule="steps", temperature=0.5, buffer_size=2)
    names = {"denoising_steps", "semi_complete_threshold", "add_block_threshold", "top_p", "top_k", "seed"}
    assert names <= set(drawn.effective())
    assert not {"accept_threshold", "accept_count"} & set(drawn.effective())


def test_a_map_of_effective_knobs_makes_the_same_configuration():
    made = DecodeKnobs.from_mapping({"schedule": "count", "accept_count": 3, "stop_tokens": [1, 2]})
    assert DecodeKnobs.from_mapping(made.effective()) == made


def test_the_map_goes_before_defaults_and_defaults_before_the_engines_own():
    made = DecodeKnobs.from_mapping({"accept_threshold": 0.8}, {"accept_threshold": 0.7, "buffer_size": 2})
    assert (made.accept_threshold, made.buffer_size, made.add_block_threshold) == (0.8, 2, 0.1)


def test_sampling_is_none_exactly_if_greedy():
    assert DecodeKnobs().sampling is None
    assert DecodeKnobs(temperature=1, seed=3).sampling == Sampling(1.0, 1.0, 0, 3)


def test_a_model_spec_reports_every_fault():
    assert faults(ModelSpec.from_mapping, {"dtype": "float16", "end_ids": [-1], "devise": "cpu"}) == (
        "devise: unknown knob; did you mean device?",
        "checkpoint: missing; it must be a text of at least one character",
        "dtype: 'float16' is not allowed; it must be one of float32, bfloat16",
        "end_ids: (-1,) is not allowed; it must be a list of token ids",
    )
    assert ModelSpec.from_mapping({"checkpoint": "here", "end_ids": [1, 2]}).end_ids == (1, 2)


def test_every_knob_has_a_paragraph_and_a_rule():
    for cls in (DecodeKnobs, ModelSpec):
        described = {name.strip() for line in cls.__doc__.splitlines() for name in line.split(",")}
        names = {field.name for field in dataclasses.fields(cls)}
        assert names <= described
        assert names == set(cls._rules)
