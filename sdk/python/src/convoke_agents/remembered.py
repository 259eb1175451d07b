"""Remembers the ids that were seen last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """The values of the ids that were seen last, each with the time when it was last seen."""

    def __init__(self, for_s: float, size_max: int, now: Callable[[], float]) -> None:
        self._for_s = for_s
        self._size_max = size_max
        self._now = now
        # The first entry was not seen for the longest time.
        self._met: OrderedDict[str, tuple[T, float]] = OrderedDict()

    def set(self, key: str, value: T) -> None:
        self._met.pop(key, None)
        self._met[key] = (value, self._now())
        while len(self._met) > self._size_max or self._is_over(next(iter(self._met.values()))[1]):
            self._met.popitem(last=False)

    def get(self, key: str) -> tuple[T] | None:
        """The value in a tuple; None when the id was never seen, or is forgotten."""
        met = self._met.get(key)
        if met is None or self._is_over(met[1]):
            return None
        self.set(key, met[0])
        return (met[0],)

    def _is_over(self, at_s: float) -> bool:
        return self._now() - at_s > self._for_s
