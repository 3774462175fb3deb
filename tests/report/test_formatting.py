"""Rounding follows the standard error, and what is called a bound stays one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.report.formatting import at_most, clean, decimals, number, one_in

from .page import value_of


@settings(deadline=None)
@given(
    ratio=st.floats(-1e4, 1e4),
    scale=st.floats(1e-9, 1e12),
)
def test_nothing_the_error_can_resolve_is_rounded_away(ratio: float, scale: float) -> None:
    shown = number(ratio * scale, decimals(scale))
    assert value_of(shown) == pytest.approx(ratio * scale, abs=0.051 * scale)
    digits = sum(c.isdigit() for c in shown.partition("×")[0])
    assert digits <= 21


@given(scale=st.floats(1e-9, 1e12))
def test_an_error_shows_two_digits(scale: float) -> None:
    assert value_of(number(scale, decimals(scale))) == pytest.approx(scale, rel=0.051)


@given(value=st.floats(1e-6, 1e9))
def test_at_most_never_understates(value: float) -> None:
    shown = value_of(at_most(value))
    assert value * (1 - 1e-8) <= shown <= value * 1.0101


@given(probability=st.floats(1e-15, 0.5))
def test_one_in_never_understates_the_chance(probability: float) -> None:
    inverse = value_of(one_in(probability).removeprefix("1 in "))
    assert probability * (1 - 1e-8) <= 1.0 / inverse <= probability * 2.01


def test_absent_scales_fall_back_to_three_digits() -> None:
    for scale in (None, 0.0, -1.0, math.inf):
        assert decimals(scale) is None
    assert number(1234.5, None) == "1,230"


def test_clean_keeps_ordinary_text() -> None:
    text = "Ärztin 漢字 \N{ZERO WIDTH JOINER} 😀 a–b"
    assert clean(text) == text
    assert clean({"a\n": ["\u202e", 1, None]}) == {"a ": ["\ufffd", 1, None]}
