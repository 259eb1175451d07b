"""Pulling, with a service that does what a test asks for."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import pytest
from conftest import DEADLINE_S

from convoke_agents import AsyncConvokeClient, ConvokeError, PushInHand
from convoke_agents.pull import AsyncPulling

pytestmark = pytest.mark.anyio

Failure = int | Literal["cut"]


class ScriptedService:
    """Hands out the pushes of a test, and fails when a test asks for that."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.failures: list[Failure] = []
        """How the next requests fail: with a status, or with a connection that is closed."""
        self.retry_after: str | None = None
        """The Retry-After of failures with a status."""
        self.is_slow = False
        """Whether the pushes of a response arrive in two parts, with a pause of three seconds between them."""
        self.refused_text: str | None = None
        """A firewall responds with a page to a request that has this text."""
        self._pushes: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._waiting = 0
        self._is_closed = False
        handler = type("Handler", (Handler,), {"service": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def push(self, delivery_id: str, meeting_id: str | None = None, left_s: float = 600) -> None:
        """Hands out a push; each delivery is of a meeting of its own, unless the test says otherwise."""
        message = {"meeting_id": meeting_id or f"m-{delivery_id}", "message": {"content": delivery_id}}
        fields = {**message, "target_agents": ["a"], "timestamp": ""}
        deadline_at = datetime.now(timezone.utc) + timedelta(seconds=left_s)
        with self._changed:
            self._pushes.append(
                {
                    "delivery_id": delivery_id,
                    "attempt": 1,
                    "headers": {"webhook-id": delivery_id},
                    "body": json.dumps({"event": "new_message", **fields}),
                    "deadline_at": deadline_at.isoformat(),
                }
            )
            self._changed.notify_all()

    def until_waiting(self) -> None:
        """Waits until a request waits for pushes."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting > 0, DEADLINE_S)

    def until_handed_in(self, delivery_id: str) -> None:
        """Waits until a request has a result of the delivery."""
        with self._changed:
            assert self._changed.wait_for(lambda: delivery_id in self._handed_in(), DEADLINE_S)

    def _handed_in(self) -> list[str]:
        return [result["delivery_id"] for request in self.requests for result in request["results"]]

    def failure_of(self, request: dict[str, Any]) -> Failure | None:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            return self.failures.pop(0) if self.failures else None

    def pushes_for(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        with self._changed:
            if request["wait_s"] > 0:
                self._waiting += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._pushes or self._is_closed, DEADLINE_S)
                self._waiting -= 1
            count = request["max"]
            taken, self._pushes = self._pushes[:count], self._pushes[count:]
            return taken


class Handler(BaseHTTPRequestHandler):
    service: ScriptedService

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.service.refused_text is not None and self.service.refused_text in text:
            self.send_response(403)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        request = json.loads(text)
        failure = self.service.failure_of(request)
        if failure == "cut":
            self.close_connection = True
        elif failure is None:
            pushes = self.service.pushes_for(request)
            # The client may have given up this request.
            with suppress(OSError):
                self._send(200, {"pushes": pushes, "results": []})
        else:
            problem = {"type": "t", "title": "t", "status": failure, "detail": "what to do", "code": "some_code"}
            self._send(failure, problem)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        if status != 200 and self.service.retry_after is not None:
            self.send_header("retry-after", self.service.retry_after)
        self.end_headers()
        if self.service.is_slow and b"delivery_id" in text:
            self.wfile.write(text[:100])
            time.sleep(3)
            text = text[100:]
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def scripted() -> Iterator[ScriptedService]:
    service = ScriptedService()
    yield service
    service.close()


@pytest.mark.parametrize(
    ("failure", "retry_after"), [(503, None), (503, "60"), ("cut", None)], ids=["busy", "asks-for-a-minute", "away"]
)
async def test_it_ends_in_time_and_after_a_few_requests_when_the_service_fails_and_a_result_is_in_hand(
    scripted: ScriptedService, monkeypatch: pytest.MonkeyPatch, failure: Failure, retry_after: str | None
) -> None:
    # A second instead of ten.
    monkeypatch.setattr("convoke_agents.pull._HAND_IN_S_MAX", 1.0)
    scripted.push("d1")
    scripted.retry_after = retry_after
    ended_at_s, before = 0.0, 0
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i") as pulling:
        async for push in pulling:
            before = len(scripted.requests)
            # More failures than there is time for.
            scripted.failures = [failure] * 500
            pulling.stop()
            ended_at_s = time.monotonic()
            push.respond()
    assert time.monotonic() - ended_at_s < 30
    tries = len(scripted.requests) - before
    assert 2 <= tries <= 40


@pytest.mark.parametrize(
    ("failures", "tries"),
    [([], 1), ([503], 2), (["cut"], 1), ([404], 1)],
    ids=["there", "busy", "away", "refuses-for-good"],
)
async def test_a_stop_while_a_push_may_be_on_its_way_lets_the_service_take_it_back_and_does_not_wait_for_a_lost_service(
    scripted: ScriptedService, failures: list[Failure], tries: int
) -> None:
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i") as pulling:
        reading = asyncio.ensure_future(_all(pulling))
        await asyncio.to_thread(scripted.until_waiting)
        waiting = scripted.requests[-1]
        before = len(scripted.requests)
        scripted.failures = failures
        pulling.stop()
        assert await asyncio.wait_for(reading, DEADLINE_S) == []
    request = {"results": [], "max": 0, "wait_s": 0, "pull_id": waiting["pull_id"]}
    assert scripted.requests[before:] == [request] * tries


async def test_the_request_with_the_last_result_lets_the_service_take_back_a_push_on_its_way(
    scripted: ScriptedService,
) -> None:
    scripted.push("d1")
    waiting: dict[str, Any] = {}
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i", concurrency=2) as pulling:
        async for push in pulling:
            await asyncio.to_thread(scripted.until_waiting)
            waiting = scripted.requests[-1]
            before = len(scripted.requests)
            pulling.stop()
            push.respond()
    results = [{"delivery_id": "d1", "attempt": 1, "status_code": 200}]
    request = {"results": results, "max": 0, "wait_s": 0, "pull_id": waiting["pull_id"]}
    assert scripted.requests[before:] == [request]


async def test_what_on_connection_raises_ends_the_iteration(scripted: ScriptedService) -> None:
    scripted.failures = [503]

    def on_connection(state: str, _: object) -> None:
        raise RuntimeError(state)

    async with AsyncConvokeClient(scripted.url) as client:
        with pytest.raises(RuntimeError, match="reconnecting"):
            await asyncio.wait_for(_all(client.pull("i", on_connection=on_connection)), DEADLINE_S)


async def test_only_the_first_result_of_a_push_counts(scripted: ScriptedService) -> None:
    scripted.push("d1")
    handled: list[str] = []
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i") as pulling:
        async for push in pulling:
            handled.append(push.delivery_id)
            if handled == ["d1"]:
                push.respond(500)
                scripted.push("d1")
                scripted.push("d2")
            push.respond()
            if push.delivery_id == "d2":
                break
    assert handled == ["d1", "d1", "d2"]


async def test_a_refusal_makes_the_pushes_in_hand_late(scripted: ScriptedService) -> None:
    scripted.push("d1")
    held: list[PushInHand] = []
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i", concurrency=3) as pulling:

        async def read() -> None:
            async for push in pulling:
                held.append(push)
                if len(held) == 1:
                    await asyncio.to_thread(scripted.until_waiting)
                    scripted.failures = [404]
                    scripted.push("d2")

        with pytest.raises(ConvokeError, match="some_code"):
            await read()
    assert [push.is_late for push in held] == [True, True]


async def test_a_success_is_forgotten_when_those_since_took_more_than_16_mib(scripted: ScriptedService) -> None:
    # The first character makes each character take four bytes, so 69 of these responses fit into 16 MiB.
    body = "😀" + "a" * 60_000
    handled: list[str] = []
    for number in [*range(70), 1, 69, 0, 70]:
        scripted.push(f"d{number}")
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i") as pulling:
        async for push in pulling:
            handled.append(push.delivery_id)
            push.respond(body=body)
            if push.delivery_id == "d70":
                break
    assert handled == [*(f"d{number}" for number in range(70)), "d0", "d70"]


async def test_a_meeting_has_one_push_in_hand_although_a_response_may_have_two_the_next_one_and_one_aside(
    scripted: ScriptedService,
) -> None:
    for delivery_id in ("d1", "d2", "d3"):
        scripted.push(delivery_id, "m")
    scripted.push("d4")
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i", concurrency=4) as pulling:
        pushes = aiter(pulling)
        first, other = await anext(pushes), await anext(pushes)
        assert (first.delivery_id, other.delivery_id) == ("d1", "d4")
        following = asyncio.ensure_future(anext(pushes))
        other.respond()
        await asyncio.to_thread(scripted.until_handed_in, "d4")
        assert not following.done()
        first.respond()
        assert (await following).delivery_id == "d2"


async def test_after_its_deadline_a_push_without_a_result_holds_up_no_other_push_of_its_meeting(
    scripted: ScriptedService,
) -> None:
    scripted.push("d1", "m", left_s=1)
    scripted.push("d2", "m")
    scripted.push("d3", "m")
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i", concurrency=3) as pulling:
        pushes = aiter(pulling)
        first, second = await anext(pushes), await anext(pushes)
        assert (second.delivery_id, first.is_late) == ("d2", True)
        # The meeting still waits for d2, although d1 has its result now.
        first.respond()
        scripted.push("d4")
        assert (await anext(pushes)).delivery_id == "d4"
        second.respond()
        assert (await anext(pushes)).delivery_id == "d3"


async def _all(pulling: AsyncPulling) -> list[PushInHand]:
    return [push async for push in pulling]


async def test_at_the_end_no_pause_that_began_before_keeps_back_the_last_result(scripted: ScriptedService) -> None:
    scripted.push("d1")
    scripted.push("d2")
    held: list[PushInHand] = []

    def on_connection(state: str, _: object) -> None:
        if state == "reconnecting":
            held[1].respond()

    began_s = time.monotonic()
    async with (
        AsyncConvokeClient(scripted.url) as client,
        client.pull("i", concurrency=2, on_connection=on_connection) as pulling,
    ):
        async for push in pulling:
            held.append(push)
            if len(held) == 2:
                scripted.failures = [503]
                scripted.retry_after = "60"
                pulling.stop()
                held[0].respond()
    assert time.monotonic() - began_s < 30
    assert [result["delivery_id"] for result in scripted.requests[-1]["results"]] == ["d1", "d2"]


async def test_a_result_whose_text_a_firewall_refuses_holds_up_neither_pushes_nor_results_and_arrives_without_its_text(
    scripted: ScriptedService,
) -> None:
    scripted.refused_text = "<script>"
    for number in (1, 2, 3):
        scripted.push(f"d{number}")
    why: list[str] = []

    def on_connection(_: str, error: ConvokeError | None) -> None:
        if error is not None:
            why.append(error.detail)

    async with (
        AsyncConvokeClient(scripted.url) as client,
        client.pull("i", concurrency=2, on_connection=on_connection) as pulling,
    ):
        async for push in pulling:
            push.respond(reply="<script>" if push.delivery_id == "d1" else "yes")
            if push.delivery_id == "d3":
                pulling.stop()
    given = {result["delivery_id"]: result for request in scripted.requests for result in request["results"]}
    left_out = "the text of this result was left out: something between this machine and Convoke refuses it"
    assert given["d1"] == {"delivery_id": "d1", "attempt": 1, "status_code": 200, "body": left_out}
    assert "yes" in given["d2"]["body"]
    assert "yes" in given["d3"]["body"]
    assert any("responded 403" in detail and "refuses the result of d1" in detail for detail in why)


async def test_the_pushes_of_a_slow_link_may_take_longer_than_the_head_of_their_response(
    scripted: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convoke_agents.pull._GRACE_S", 1.0)
    scripted.is_slow = True
    scripted.push("d1")
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i") as pulling:
        async for push in pulling:
            push.respond()
            break
    assert [request["wait_s"] for request in scripted.requests[:1]] == [0]
    assert [result["status_code"] for request in scripted.requests for result in request["results"]] == [200]


@pytest.mark.parametrize("is_seen", [True, False], ids=["with-a-result", "without"])
async def test_a_loop_that_ends_early_lets_the_service_take_back_what_nobody_saw_and_not_what_was_seen(
    scripted: ScriptedService, is_seen: bool
) -> None:
    for number in (1, 2, 3):
        scripted.push(f"d{number}")
    async with AsyncConvokeClient(scripted.url) as client, client.pull("i", concurrency=3) as pulling:
        async for push in pulling:
            if is_seen:
                push.respond()
            break
    results = [result for request in scripted.requests for result in request["results"]]
    name = scripted.requests[0]["pull_id"]
    if is_seen:
        assert results == [{"delivery_id": "d1", "attempt": 1, "status_code": 200}]
        assert scripted.requests[-1] == {"results": [], "max": 0, "wait_s": 0, "pull_id": name}
    else:
        ended = {"attempt": 1, "not_reached": "the program that pulls has ended"}
        assert results == [{"delivery_id": each, **ended} for each in ("d2", "d3")]
        assert all(request["pull_id"] != name for request in scripted.requests[1:])
