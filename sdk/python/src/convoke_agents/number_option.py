"""Checks an option that is a number."""

from __future__ import annotations

import math


def check_number(name: str, value: float, at_least: float, at_most: float = math.inf) -> None:
    """A comparison with NaN is always false, so a tolerance or a limit that is NaN would let everything pass.

    :raises TypeError: the value is no number
    :raises ValueError: it is NaN, below `at_least`, or above `at_most`
    """
    if not isinstance(value, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not at_least <= value <= at_most:
        upper = "" if at_most == math.inf else f", up to {at_most:g}"
        raise ValueError(f"{name} must be {at_least:g} or more{upper}, not {value}")
