"""Checks an option that is a number."""

from __future__ import annotations

import math


def check_number(name: str, value: float, at_least: float, at_most: float = math.inf) -> None:
    """Checks that a value is a number from `at_least` to `at_most`.

    NaN is refused: a comparison with NaN is always false, so with NaN as a limit everything would pass.

    :raises TypeError: the value is not a number
    :raises ValueError: it is NaN, below `at_least`, or above `at_most`
    """
    if not isinstance(value, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not at_least <= value <= at_most:
        upper = "" if at_most == math.inf else f", up to {at_most:g}"
        raise ValueError(f"{name} must be {at_least:g} or more{upper}, not {value}")
