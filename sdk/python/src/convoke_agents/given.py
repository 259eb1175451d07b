"""The fields that a caller gives in the query or the body of a request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, TypeAlias


class _LeftOut(Enum):
    LEFT_OUT = "left out"

    def __repr__(self) -> str:
        return "LEFT_OUT"


LeftOut: TypeAlias = Literal[_LeftOut.LEFT_OUT]
"""Stands for an argument that is not given, where None means something to the service."""

LEFT_OUT: Final = _LeftOut.LEFT_OUT


def given(nullable: Mapping[str, Any] | None = None, /, **fields: Any) -> dict[str, Any]:
    """The fields that have a value, as JSON has them. None is a value only for the names in `nullable`."""
    kept = {name: value for name, value in fields.items() if value is not None}
    kept.update(nullable or {})
    return {name: json_value(value) for name, value in kept.items() if value is not LEFT_OUT}


def json_value(value: Any) -> Any:
    """A time as RFC 3339, and anything else as it is.

    :raises ValueError: the time has no time zone
    """
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone; use datetime.now(timezone.utc) or .astimezone()")
    return value.isoformat()
