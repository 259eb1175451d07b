"""The SDK checks a number among the options at once, and its error names the option."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from convoke_agents import AsyncConvokeClient, ConvokeClient, Receiver, serve_agent_async, verify, verify_signature

SECRET = "whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o="
URL = "http://127.0.0.1:1"


def receiver(**options: Any) -> None:
    Receiver(SECRET, lambda _: None, **options)


def verified(**options: Any) -> None:
    verify(b"", {}, SECRET, **options)


def signature_verified(**options: Any) -> None:
    verify_signature(b"", {}, SECRET, **options)


def client(**options: Any) -> None:
    with ConvokeClient(URL, **options):
        pass


def async_client(**options: Any) -> None:
    AsyncConvokeClient(URL, **options)


def pull(**options: Any) -> None:
    with ConvokeClient(URL) as each:
        each.pull("i", **options)


def serve(**options: Any) -> None:
    asyncio.run(serve_agent_async(lambda _: None, agent_id="anna", base_url=URL, **options))


OPTIONS: list[tuple[str, Callable[..., object], list[float]]] = [
    ("tolerance_s", verified, [-1]),
    ("tolerance_s", signature_verified, [-1]),
    ("tolerance_s", receiver, [-1]),
    ("body_bytes_max", receiver, [0]),
    ("remember_s", receiver, [-1]),
    ("remembered_max", receiver, [-1]),
    ("timeout_s", client, [0, float("inf")]),
    ("timeout_s", async_client, [0, float("inf")]),
    ("send_attempts_max", client, [0]),
    ("send_attempts_max", async_client, [0]),
    ("concurrency", pull, [0]),
    ("concurrency", serve, [0]),
    ("turn_s", serve, [0]),
    ("max_age_s", serve, [-1]),
]


@pytest.mark.parametrize(("name", "use", "refused"), OPTIONS)
def test_a_number_that_is_no_limit_is_refused_at_once(
    name: str, use: Callable[..., object], refused: list[float]
) -> None:
    for value in (float("nan"), float("-inf"), *refused):
        with pytest.raises(ValueError, match=f"^{name} must be "):
            use(**{name: value})
    with pytest.raises(TypeError, match=f"^{name} must be a number, not '5 min'$"):
        use(**{name: "5 min"})


def test_the_smallest_and_the_largest_numbers_are_taken() -> None:
    receiver(tolerance_s=0, body_bytes_max=1, remember_s=0, remembered_max=0)
    receiver(tolerance_s=float("inf"), remember_s=float("inf"))
    client(timeout_s=0.001, send_attempts_max=1)
    client(timeout_s=1e9)
    pull(concurrency=1000)
