"""The live feed: server-sent events (WHATWG HTML, section 9.2), over as many connections as needed."""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from convoke_agents.backoff import asked_pause_s
from convoke_agents.errors import ConvokeError, error_from_proxy, error_from_response
from convoke_agents.json_value import parse_json
from convoke_agents.pull import OnConnection
from convoke_agents.requests import AsyncRequests, Target

# The service sends something every 15 s, so a connection that is silent for this long is dead.
_SILENCE_S_MAX = 40.0
_WAIT_FIRST_S = 0.5
_WAIT_S_MAX = 15.0
# After a connection that lasted this long, the pauses begin anew. After a shorter connection they grow on, because
# something may cut each connection at once.
_LASTED_S = 5.0
# Longer than any event.
_LINE_CHARS_MAX = 4 << 20


@dataclass(frozen=True)
class FeedEvent:
    """An event of the live feed; docs/events.md has their names, and the data of each."""

    name: str
    data: dict[str, Any]
    id: str
    """Give it as `last_event_id` to continue after this event."""


async def listen(
    target: Target,
    query: Mapping[str, Any],
    last_event_id: str | None,
    on_connection: OnConnection | None,
) -> AsyncGenerator[FeedEvent, None]:
    """Follows the live feed. When the connection is lost, connects again and continues after the last event."""
    url = target.url_of("/api/v1/events/", query)
    failures = 0
    was_connected = False
    # The feed has connections of its own, because those of the client may be closed earlier.
    requests = AsyncRequests(target)
    try:
        while True:
            failure: ConvokeError | None = None
            connected_at_s = math.inf
            try:
                headers = {"accept": "text/event-stream"}
                if last_event_id is not None:
                    headers["last-event-id"] = last_event_id
                async with requests.open("GET", url, headers=headers, timeout_s=_SILENCE_S_MAX) as response:
                    if not response.is_success:
                        text = (await response.aread()).decode(errors="replace")
                        raise error_from_response(response, text, url)
                    if not response.headers.get("content-type", "").startswith("text/event-stream"):
                        raise error_from_proxy(response, url)
                    connected_at_s = time.monotonic()
                    was_connected = True
                    if on_connection is not None:
                        on_connection("connected", None)
                    parser = EventParser()
                    async for piece in response.aiter_text():
                        for event in parser.push(piece):
                            last_event_id = event.id or last_event_id
                            if not event.data:
                                continue
                            # This event says why the connection closes. The next connection shows whether the end is
                            # final.
                            if event.name == "end":
                                failure = _end_of(event)
                            elif event.name != "overflow":
                                yield FeedEvent(event.name, _data_of(event), last_event_id or "")
            except ConvokeError as error:
                # Before the first connection, a response that is not from Convoke means a wrong address.
                if not (error.is_waited_out if was_connected else error.may_pass):
                    raise
                failure = error
            if on_connection is not None:
                on_connection("reconnecting", failure)
            if time.monotonic() - connected_at_s >= _LASTED_S:
                failures = 0
            wait_s = min(_WAIT_FIRST_S * float(2 ** min(failures, 20)), _WAIT_S_MAX) * random.uniform(0.5, 1)
            failures += 1
            await asyncio.sleep(max(wait_s, 0 if failure is None else asked_pause_s(failure)))
    finally:
        await requests.aclose()


def _end_of(event: RawEvent) -> ConvokeError | None:
    """Why the service ended the feed; None when it does not say."""
    data: Any = _data_of(event)
    code: str | None = cast("dict[str, Any]", data).get("code") if isinstance(data, dict) else None
    return None if code is None else ConvokeError(code, "the service ended the live feed")


def _data_of(event: RawEvent) -> Any:
    """:raises ConvokeError: the data is no JSON"""
    try:
        return parse_json(event.data)
    except ValueError as error:
        text = f"the data of the event {event.name} is not JSON"
        raise ConvokeError("unexpected_response", text) from error


@dataclass
class RawEvent:
    """One event, as the stream contains it."""

    name: str
    data: str
    id: str | None


class EventParser:
    """Parses the events of a stream. The text may be cut into pieces anywhere."""

    def __init__(self) -> None:
        self._rest = ""
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def push(self, text: str) -> list[RawEvent]:
        """Takes the next piece. Returns the events that are now complete."""
        *lines, self._rest = re.split(r"\r\n|\n|\r(?!$)", self._rest + text)
        if len(self._rest) > _LINE_CHARS_MAX:
            raise ConvokeError("unexpected_response", "a line of the live feed has no end")
        events: list[RawEvent] = []
        for line in lines:
            if line != "":
                self._take(line)
                continue
            if self._data or self._id is not None:
                events.append(RawEvent(self._name or "message", "\n".join(self._data), self._id))
            self._name, self._data, self._id = "", [], None
        return events

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
