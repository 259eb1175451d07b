"""JSON as it is written and read here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel


def json_text(value: object) -> str:
    """JSON as short as it can be. A lone half of a surrogate pair cannot be written in UTF-8, and is escaped.

    :raises ValueError: a number is not finite, or something is no JSON
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_plain)
    return text


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    A whole number of more digits than Python converts (4300 unless it was set) is read as a float: nobody can stop an agent
    with such a message.

    :raises ValueError: it is no JSON, or nested too deeply
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"{type(value).__name__} is not JSON; convert it first")
