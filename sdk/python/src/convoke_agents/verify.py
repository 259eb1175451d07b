"""Verifies and reads a push: Standard Webhooks v1."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote

from convoke_agents.json_value import parse_json
from convoke_agents.number_option import check_number

_TOLERANCE_S = 300
_SECRET_PREFIX = "whsec_"
_SECRET_BYTES_MIN = 24
_SECRET_BYTES_MAX = 64
# The webhook-id of a webhook test begins with this text; the id of a delivery has no hyphen there. The signature covers
# the id. It does not cover the header convoke-test: anybody between sender and receiver could add that header to a real
# push, and then the push would wake no agent.
_TEST_ID_PREFIX = "dlv_test-"

VerificationReason: TypeAlias = Literal[
    "invalid_secret",
    "missing_header",
    "invalid_timestamp",
    "timestamp_too_old",
    "timestamp_too_new",
    "no_matching_signature",
    "invalid_body",
]
"""`invalid_secret`: the receiver's own secret is not `whsec_` and the base64 of 24 to 64 bytes. `no_matching_signature`:
forged, changed on the way, or signed with another secret. `invalid_body`: genuine, but not a push."""


class VerificationError(Exception):
    """Why a request cannot be trusted as a push. The message contains no secret."""

    reason: VerificationReason

    def __init__(self, reason: VerificationReason, detail: str) -> None:
        # The arguments that unpickling calls this method with.
        super().__init__(reason, detail)
        self.reason = reason
        self._detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self._detail}"


@dataclass(frozen=True, kw_only=True)
class Push:
    """A push: one message for agents of this instance."""

    meeting_id: str
    message: dict[str, Any]
    """The message as its sender gave it."""
    target_agents: list[str]
    """The agents of this instance to notify."""
    timestamp: str
    """The `created_at` of the message; empty when it has none."""
    webhook_id: str
    """The same on every attempt: a push whose id was seen before is a repetition. The signature covers it."""
    message_id: str | None
    """From the header convoke-message-id, which the signature does not cover; None when absent."""
    seq: int | None
    """The number of the message in its meeting, from convoke-seq; not covered by the signature."""
    attempt: int | None
    """Starts at 1; from convoke-attempt; not covered by the signature."""
    from_agent: str | None
    """The agent that sent the message; None: the sender named none. Not covered by the signature."""
    in_reply_to: str | None
    """The message_id of the message that this one answers; None: the sender named none. Not covered by the signature."""
    hops: int | None
    """How many messages of agents in a row led to the message; None when absent. Not covered by the signature."""
    missed: int
    """How many messages before this one were for these agents and are not pushed, up to 1,000; 0 for a membership
    without rules. `client.list_messages` has them. From convoke-missed; not covered by the signature."""
    reply_url: str | None
    """With this and `reply_token` the instance can reply later, for a day: `client.send_reply(push.reply_token, …)`, or a
    POST to the address. None unless the instance may reply. Not covered by the signature."""
    reply_token: str | None = field(repr=False)
    traceparent: str | None
    """The trace that the message belongs to, so that your program can continue it; None: no trace. Not covered by the
    signature."""
    tracestate: str | None
    test: bool
    """True for the sample push of a webhook test, known by its webhook-id, which the signature covers."""
    body: str
    """The JSON text that was signed, character for character."""
    event: str = "new_message"


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance_s: int = _TOLERANCE_S,
    now: Callable[[], float] = time.time,
) -> Push:
    """Verifies and reads one push. Give the body as it arrived, not JSON that was parsed and written again.

    :param headers: Any mapping, such as `request.headers` of a framework; the case of names does not matter.
    :param secret: The instance's webhook_secret, or several of them while it is being rotated.
    :param tolerance_s: How many seconds the timestamp may be off, both ways.
    :param now: The clock, in seconds since 1970.
    :raises VerificationError: with a `reason`
    :raises ValueError: tolerance_s is NaN or negative
    """
    verify_signature(body, headers, secret, tolerance_s=tolerance_s, now=now)
    return read_push(body, headers)


def verify_signature(
    body: bytes | str,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance_s: int = _TOLERANCE_S,
    now: Callable[[], float] = time.time,
) -> None:
    """Verifies the signature and the timestamp alone, whatever the body is.

    :raises VerificationError: with a `reason`
    :raises ValueError: tolerance_s is NaN or negative
    """
    check_number("tolerance_s", tolerance_s, 0)
    verify_with_keys(body, headers, decode_secrets(secret), tolerance_s=tolerance_s, now=now)


def verify_with_keys(
    body: bytes | str,
    headers: Mapping[str, str],
    keys: Sequence[bytes],
    *,
    tolerance_s: int,
    now: Callable[[], float],
) -> None:
    """As `verify_signature`, with secrets that were decoded before."""
    named = lower(headers)
    webhook_id = _required(named, "webhook-id")
    timestamp = _required(named, "webhook-timestamp")
    signatures = _required(named, "webhook-signature")
    _check_timestamp(timestamp, tolerance_s, now())
    signed = f"{webhook_id}.{timestamp}.".encode(errors="surrogateescape") + _bytes_of(body)
    # One HMAC for each secret, no matter how many signatures the header has.
    given = [each.encode(errors="surrogateescape") for each in signatures.split(" ")]
    matches = False
    for key in keys:
        expected = b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
        for signature in given:
            matches |= hmac.compare_digest(signature, expected)
    if not matches:
        raise VerificationError(
            "no_matching_signature",
            "no v1 signature matches; check that the secret is the one of this instance and that the body is verified "
            "as it arrived",
        )


def _check_timestamp(timestamp: str, tolerance_s: int, now_s: float) -> None:
    if not re.fullmatch(r"[0-9]{1,12}", timestamp):
        raise VerificationError("invalid_timestamp", "webhook-timestamp is not a number of seconds")
    ahead_s = int(timestamp) - int(now_s)
    if ahead_s < -tolerance_s:
        detail = (
            f"signed {-ahead_s} s ago, {tolerance_s} s are allowed; a replay, or the clock of this machine is wrong"
        )
        raise VerificationError("timestamp_too_old", detail)
    if ahead_s > tolerance_s:
        detail = f"signed {ahead_s} s in the future, {tolerance_s} s are allowed; check the clocks"
        raise VerificationError("timestamp_too_new", detail)


def decode_secrets(secret: str | Sequence[str]) -> list[bytes]:
    """The keys of secrets.

    :raises VerificationError: with the reason `invalid_secret`
    """
    # A setting that is absent is often None.
    secrets = [secret] if isinstance(secret, str) else list(secret or [])
    if not secrets:
        raise _invalid_secret()
    return [_decode_secret(each) for each in secrets]


def _decode_secret(secret: str | None) -> bytes:
    if secret is None or not secret.startswith(_SECRET_PREFIX):
        raise _invalid_secret()
    text = secret[len(_SECRET_PREFIX) :]
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _invalid_secret() from None
    # b64decode accepts bits after the last byte; the server does not.
    if not _SECRET_BYTES_MIN <= len(key) <= _SECRET_BYTES_MAX or base64.b64encode(key).decode() != text:
        raise _invalid_secret()
    return key


def _invalid_secret() -> VerificationError:
    """The error for a secret that cannot be used. `whsec_` alone would be an empty key, with which anybody can sign."""
    return VerificationError(
        "invalid_secret",
        "the secret must be whsec_ followed by the base64 of 24 to 64 bytes, as the registration returned it",
    )


def read_push(body: bytes | str, headers: Mapping[str, str]) -> Push:
    """Reads a push whose signature was verified.

    :raises VerificationError: with the reason `invalid_body`
    """
    try:
        text = _bytes_of(body).decode()
        value = parse_json(text)
    except ValueError:
        raise VerificationError("invalid_body", "the body is not JSON in UTF-8") from None
    if not _is_push(value):
        raise VerificationError("invalid_body", "the body is not that of a new_message push")
    named = lower(headers)
    webhook_id = _required(named, "webhook-id")
    return Push(
        event=value["event"],
        meeting_id=value["meeting_id"],
        message=value["message"],
        target_agents=value["target_agents"],
        timestamp=value["timestamp"],
        webhook_id=webhook_id,
        message_id=named.get("convoke-message-id"),
        seq=_count(named.get("convoke-seq")),
        attempt=_count(named.get("convoke-attempt")),
        from_agent=_decoded(named.get("convoke-from-agent")),
        in_reply_to=named.get("convoke-in-reply-to"),
        hops=_count(named.get("convoke-hops")),
        missed=_count(named.get("convoke-missed")) or 0,
        traceparent=named.get("traceparent"),
        tracestate=named.get("tracestate"),
        reply_url=named.get("convoke-reply-url"),
        reply_token=named.get("convoke-reply-token"),
        test=webhook_id.startswith(_TEST_ID_PREFIX),
        body=text,
    )


def _is_push(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, Any]", value)
    agents: Any = fields.get("target_agents")
    return (
        fields.get("event") == "new_message"
        and isinstance(fields.get("meeting_id"), str)
        and isinstance(fields.get("message"), dict)
        and _are_texts(agents)
        and isinstance(fields.get("timestamp"), str)
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value))


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers under names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def _required(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise VerificationError("missing_header", f"there is no header {name}")
    return value


def _bytes_of(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _count(value: str | None) -> int | None:
    return int(value) if value is not None and re.fullmatch(r"[0-9]{1,15}", value) else None


def _decoded(value: str | None) -> str | None:
    """Decodes percent-encoded UTF-8; None when it is not valid."""
    if value is None or re.search(r"%(?![0-9A-Fa-f]{2})", value):
        return None
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return None
