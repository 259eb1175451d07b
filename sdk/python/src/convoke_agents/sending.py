"""Sends a message or a reply again so that it is stored once."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoke_agents.errors import ConvokeError
from convoke_agents.given import given
from convoke_agents.json_text import json_text
from convoke_agents.json_value import parse_json
from convoke_agents.requests import ATTEMPTS_MAX, RETRY_WAIT_S_MAX, segment

SEND_ATTEMPTS_MAX = ATTEMPTS_MAX
# The pause before the second attempt when the server names none; it doubles from there.
_RETRY_FIRST_S = 0.25
# After so many tries, each pause is RETRY_WAIT_S_MAX. A larger power of two may be too large for a float.
_DOUBLINGS_MAX = 10
# A proxy responds 502 and 504 when it lost the node that had the request. Then it is unknown whether the message was
# stored; the key makes sure that it is stored once.
_STATUSES_TO_TRY_AGAIN = frozenset((429, 502, 503, 504))


class RawJson:
    """A message as JSON text, sent as it is written: white space, escapes and the order of the keys survive."""

    text: str

    def __init__(self, text: str) -> None:
        """:raises ValueError: it is no JSON object"""
        if not isinstance(parse_json(text), dict):
            raise ValueError("a message must be a JSON object")
        self.text = text


@dataclass(frozen=True)
class Sending:
    """A request that stores one message, however often it is made."""

    path: str
    text: str
    headers: dict[str, str]
    idempotency_key: str


def message_to_send(
    meeting_id: str | int,
    message: Mapping[str, Any] | RawJson,
    *,
    target_agents: Sequence[str] | None,
    from_agent: str | None,
    in_reply_to: str | None,
    expires_in_s: int | None,
    idempotency_key: str | None,
    traceparent: str | None,
    tracestate: str | None,
) -> Sending:
    """:raises TypeError: the message is no mapping"""
    if not isinstance(message, (Mapping, RawJson)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a message must be a mapping, or RawJson, not {type(message).__name__}")
    text = message.text if isinstance(message, RawJson) else json_text(message)
    fields = json_text(
        given(target_agents=target_agents, from_agent=from_agent, in_reply_to=in_reply_to, expires_in_s=expires_in_s)
    )[1:]
    body = f'{{"message":{text}}}' if fields == "}" else f'{{"message":{text},{fields}'
    return _sending(
        f"/api/v1/meetings/{segment(meeting_id)}/messages/", body, _trace(traceparent, tracestate), idempotency_key
    )


def reply_to_send(
    reply_token: str,
    reply: str | Mapping[str, Any],
    *,
    idempotency_key: str | None,
    traceparent: str | None,
    tracestate: str | None,
) -> Sending:
    """The reply to an earlier push, with the token of the push."""
    headers = {"convoke-reply-token": reply_token, **_trace(traceparent, tracestate)}
    return _sending("/api/v1/replies/", json_text({"reply": reply}), headers, idempotency_key)


def _trace(traceparent: str | None, tracestate: str | None) -> dict[str, str]:
    """The headers of the trace that a message belongs to."""
    headers = {"traceparent": traceparent, "tracestate": tracestate}
    return {name: value for name, value in headers.items() if value is not None}


def _sending(path: str, text: str, headers: dict[str, str], idempotency_key: str | None) -> Sending:
    key = secrets.token_hex(16) if idempotency_key is None else idempotency_key
    return Sending(path, text, {**headers, "idempotency-key": key}, key)


def retry_wait_s(error: ConvokeError, attempt: int, attempts_max: int) -> float | None:
    """How long to wait before a send is tried again; None when it must not be tried again.

    :param attempt: The number of the attempt that failed; the first is 1.
    """
    is_safe = error.code in ("unreachable", "timeout") or error.status in _STATUSES_TO_TRY_AGAIN
    if not is_safe or attempt >= attempts_max:
        return None
    if error.retry_after_s is None:
        pause_s = _RETRY_FIRST_S * 2.0 ** min(attempt - 1, _DOUBLINGS_MAX)
        return min(pause_s, RETRY_WAIT_S_MAX) * random.uniform(0.5, 1)
    return error.retry_after_s if error.retry_after_s <= RETRY_WAIT_S_MAX else None
