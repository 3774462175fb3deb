"""Numbers as a reader wants them: as many digits as the standard error supports, and no ``e-05``."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable
from typing import Any

MINUS = "\N{MINUS SIGN}"
MISSING = "not available"
_TIMES = "\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}"  # a number must not be broken over two lines
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_JOINERS = "\u200c\u200d"  # harmless, and several scripts need them


def as_number(value: Any) -> float | None:
    """Return ``value`` as a float; None if it is not a number.

    Numbers that no chart could scale become zero or infinite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:  # JSON knows integers that no float holds
        return math.inf if value > 0 else -math.inf
    if math.isnan(converted):
        return None
    if abs(converted) > 1e100:
        return math.copysign(math.inf, converted)
    return converted if abs(converted) > 1e-100 else 0.0


def decimals(scale: float | None, resolution: float = 10.0) -> int | None:
    """Return the decimals at which one unit of the last digit is at most ``scale / resolution``.

    Negative ones mean tens, hundreds and so on.

    With the default a standard error keeps two significant digits, and its value ends at the same digit.
    None where there is no scale to go by.

    >>> decimals(5.9), decimals(0.031), decimals(12_000.0), decimals(5.9, resolution=2.0)
    (1, 3, -3, 0)
    """
    if scale is None or not math.isfinite(scale) or scale <= 0.0:
        return None
    return math.ceil(-math.log10(scale / resolution) - 1e-9)


def number(value: float | None, places: int | None = None) -> str:
    r"""Return ``value`` to ``places`` decimals (None: three significant digits), with commas between thousands.

    >>> number(30.14, 1), number(123_456.0, -3), number(-0.04, 1), number(0.000012, 7), number(None)
    ('30.1', '123,000', '0.0', '1.20\xa0×\xa010⁻⁵', 'not available')
    """
    if value is None:
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    exponent = math.floor(math.log10(abs(value))) if value else 0
    if places is None:
        places = 2 - exponent if value else 0
    if value and (exponent >= 7 or (exponent < -3 and places > 6)):
        return _scientific(value, max(0, min(exponent + places, 6)))
    rounded = round(value, places) + 0.0  # no negative zero
    return f"{rounded:,.{min(max(places, 0), 12)}f}".replace("-", MINUS)


def error(value: float | None, places: int | None) -> str:
    """Return a standard error beside a value with ``places`` decimals; one that would vanish there keeps two digits.

    >>> error(3.71, 1), error(0.002, 1), error(0.0, 1)
    ('3.7', '0.0020', '0.0')
    """
    vanishes = value is not None and places is not None and 0.0 < value < 0.5 * 10.0**-places
    return number(value, decimals(value) if vanishes else places)


def sampling_error(value: float | None, places: int | None, most: float | None = None) -> str:
    r"""Return a sampling error for a table, with an upper bound of it if there is one.

    A noisy second moment may come out below the square of the mean. The sampling error is then given as zero, which is
    no estimate: noise hides the error.

    >>> sampling_error(0.31, 1), sampling_error(0.31, 1, 0.4), sampling_error(0.0, 1, 0.4), sampling_error(0.0, 1)
    ('0.3', '0.3\nat most 0.4', 'at most 0.4', 'hidden by noise')
    """
    known = [] if value == 0.0 else [error(value, places)]
    return "\n".join(known + ([] if most is None else [f"at most {error(most, places)}"])) or "hidden by noise"


def power_of_ten(value: float) -> str:
    r"""Return a small probability, as a power of ten.

    >>> power_of_ten(1e-5), power_of_ten(3.2e-7), power_of_ten(0.0)
    ('10⁻⁵', '3.2\xa0×\xa010⁻⁷', '0')
    """
    if value == 0.0 or not math.isfinite(value):
        return number(value, 0)
    if 0.001 <= abs(value) < 1e7:
        return plain(value)
    mantissa, _, power = _scientific(value, 2).partition(_TIMES)
    mantissa = mantissa.rstrip("0").rstrip(".")
    return power if mantissa == "1" else f"{mantissa}{_TIMES}{power}"


def one_in(probability: float) -> str:
    """Return a probability as ``1 in 100,000``, rounded so that the stated chance is never too small.

    >>> one_in(1e-5), one_in(3e-5)
    ('1 in 100,000', '1 in 33,300')
    """
    inverse = 1.0 / probability
    unit = 10.0 ** max(math.floor(math.log10(inverse)) - 2, 0)
    floored = math.floor(inverse / unit + 1e-9) * unit
    return f"1 in {floored:,.0f}" if floored < 1e12 else f"1 in {_scientific(floored, 2)}"


def at_most(value: float) -> str:
    """Return three significant digits, rounded up, for a sentence that says "at most".

    >>> at_most(2.71828), at_most(1.1052), at_most(22_026.5)
    ('2.72', '1.11', '22,100')
    """
    if not math.isfinite(value):
        return "an astronomical number"
    places = 2 - math.floor(math.log10(value))
    unit = 10.0**-places
    return number(math.ceil(value / unit - 1e-9) * unit, places)


def percent(share: float) -> str:
    """Return a share of one, in whole percent, without claiming 0% or 100% for what is neither.

    >>> percent(0.384), percent(0.002), percent(0.9999), percent(1.0)
    ('38%', 'under 1%', 'over 99%', '100%')
    """
    if 0.0 < share < 0.005:
        return "under 1%"
    if 0.995 <= share < 1.0:
        return "over 99%"
    return f"{share:.0%}"


def plain(value: Any) -> str:
    """Return a setting as it was given: every digit that matters, words for the rest.

    >>> plain(0.798), plain(2139), plain(1e-5), plain(True), plain(None), plain([0, 90])
    ('0.798', '2,139', '10⁻⁵', 'yes', 'none', '0, 90')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    if isinstance(value, float):
        if not math.isfinite(value):
            return number(as_number(value))
        if value.is_integer() and abs(value) < 1e7:
            return plain(int(value))
        if abs(value) < 0.001 or abs(value) >= 1e7:
            return power_of_ten(value)
        return f"{value:,.6g}".replace("-", MINUS)
    if isinstance(value, list):
        return ", ".join(plain(v) for v in value)
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    return str(value)


def clean(data: Any) -> Any:
    """Return ``data`` with every control, direction-changing and unpaired character in its text made visible.

    Names come from outside: they must neither reorder the words beside them nor make the page unencodable.
    """
    return each_text(data, lambda text: "".join(map(_visible, text)))


def each_text(data: Any, change: Callable[[str], str]) -> Any:
    """Return plain data with each of its texts changed, names of fields included."""
    if isinstance(data, dict):
        return {each_text(name, change): each_text(value, change) for name, value in data.items()}
    if isinstance(data, list):
        return [each_text(value, change) for value in data]
    return change(data) if isinstance(data, str) else data


def _visible(character: str) -> str:
    if character in "\t\n\r":
        return " "
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
    return "\N{REPLACEMENT CHARACTER}" if hidden else character


def _scientific(value: float, digits: int) -> str:
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}{_TIMES}10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", MINUS)
