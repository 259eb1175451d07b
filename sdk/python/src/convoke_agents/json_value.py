"""Reads JSON, with only the standard library, because a receiver needs no more."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    A whole number of more digits than Python converts (4300 unless it was set) is read as a float. Otherwise anybody
    could stop an agent with such a message.

    :raises ValueError: it is no JSON, or nested too deeply
    """
    try:
        return _parse(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=_integer, parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    """Python reads NaN and Infinity as numbers."""
    raise ValueError(f"{constant} is not JSON")


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)
