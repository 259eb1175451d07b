"""Remembers the ids that were seen last."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

# The bytes of an entry apart from the text of its value: 300 to 500, measured with tracemalloc on Python 3.11.
_ENTRY_BYTES = 500
# The most bytes of all entries together.
_BYTES_MAX = 16 * 1024 * 1024

T = TypeVar("T")


class Remembered(Generic[T]):
    """The values of the ids that were seen last, each with the time when it was last seen.

    When they are too many, or take more than 16 MiB, the oldest are forgotten. The newest is kept, whatever the limits.
    """

    def __init__(
        self, for_s: float, size_max: int, text_of: Callable[[T], str | None], now: Callable[[], float]
    ) -> None:
        """:param text_of: The text that a value holds."""
        self._for_s = for_s
        self._size_max = size_max
        self._text_of = text_of
        self._now = now
        # The first entry was not seen for the longest time. An entry has the value, the time, and its bytes.
        self._met: OrderedDict[str, tuple[T, float, int]] = OrderedDict()
        self._bytes = 0

    def set(self, key: str, value: T) -> None:
        before = self._met.pop(key, None)
        if before is not None:
            self._bytes -= before[2]
        # A character of a text takes one, two or four bytes.
        size = _ENTRY_BYTES + sys.getsizeof(self._text_of(value))
        self._met[key] = (value, self._now(), size)
        self._bytes += size
        while len(self._met) > 1:
            _, at_s, oldest_size = next(iter(self._met.values()))
            if len(self._met) <= self._size_max and self._bytes <= _BYTES_MAX and not self._is_over(at_s):
                break
            self._met.popitem(last=False)
            self._bytes -= oldest_size

    def get(self, key: str) -> tuple[T] | None:
        """The value in a tuple; None when the id was never seen, or is forgotten."""
        met = self._met.get(key)
        if met is None or self._is_over(met[1]):
            return None
        self.set(key, met[0])
        return (met[0],)

    def _is_over(self, at_s: float) -> bool:
        return self._now() - at_s > self._for_s
