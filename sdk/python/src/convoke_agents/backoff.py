"""The pauses while a service does not respond."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from convoke_agents.errors import ConvokeError

_PAUSE_FIRST_S = 0.1
_PAUSE_S_MAX = 5.0
# For this long after a loss of the service, the pauses stay short: a restart takes seconds.
_SOON_S = 60.0
_PAUSE_SOON_S_MAX = 0.5
# The longest pause that the service may ask for. A mistake in a proxy must not silence a machine for days.
_ASKED_S_MAX = 60.0


class Backoff:
    """The pauses before a request is made again: 0.1 s, doubling to 5 s.

    Up to half of such a pause is left out at random, so that not all machines return together. If the service asks for
    a longer pause, that pause is used whole, up to a minute.

    While the service cannot be reached, a pause is at most 0.5 s for the first minute. Such requests cost the service
    almost nothing, and they find it within half a second of its return. After that, or when the service responds with
    an error, pauses grow to 5 s.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random) -> None:
        self._now = now
        self._chance = chance
        self.reset()

    def reset(self) -> None:
        """The service has responded."""
        self._pause_s = _PAUSE_FIRST_S
        self._lost_at_s: float | None = None

    def pause_after_s(self, error: ConvokeError) -> float:
        """How long to pause after a request that failed."""
        if self._lost_at_s is None:
            self._lost_at_s = self._now()
        # The service did not get the request: there was no connection, or a proxy did not reach the service.
        is_away = error.code == "unreachable" or error.status == 502
        is_soon = is_away and self._now() - self._lost_at_s < _SOON_S
        pause_s = min(self._pause_s, _PAUSE_SOON_S_MAX if is_soon else _PAUSE_S_MAX)
        self._pause_s = pause_s * 2
        return max(pause_s * (0.5 + self._chance() / 2), asked_pause_s(error))


def asked_pause_s(error: ConvokeError) -> float:
    """The pause that the service asks for. 0 for a response that is not from Convoke."""
    return 0.0 if error.code == "unexpected_response" else min(error.retry_after_s or 0, _ASKED_S_MAX)
