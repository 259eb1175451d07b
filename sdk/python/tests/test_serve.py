"""An agent as a function takes part in meetings, against the real service."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from conftest import DEADLINE_S, Service, joined, said, until

from convoke_agents import Agent, Answer, ConvokeClient, ConvokeError, Push, Reply, serve_agent_async

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(agent: Agent, url: str, **options: Any) -> AsyncIterator[None]:
    """Serves an agent while the test runs, and then ends it as a signal does."""
    stop = asyncio.Event()
    serving = asyncio.ensure_future(serve_agent_async(agent, base_url=url, stop=stop, **options))
    try:
        yield
    finally:
        stop.set()
        await serving


def noted(codes: list[str]) -> Callable[[str, ConvokeError | None], None]:
    """Notes the code of each loss of the service."""
    return lambda _, error: None if error is None else codes.append(error.code)


async def away(call: Callable[..., Any], *args: Any) -> Any:
    """A call that blocks, beside the agent."""
    return await asyncio.to_thread(call, *args)


async def test_it_registers_joins_and_says_what_the_agent_answers(service: Service, client: ConvokeClient) -> None:
    async def agent(push: Push) -> Answer:
        return {"content": f"You said: {push.message['content']}"}

    async with served(agent, service.url, agent_id="five-lines", meetings=["five-lines"]):
        await away(joined, client, "five-lines")
        client.send_message("five-lines", {"content": "Good morning"})
        assert await away(said, client, "five-lines", 2) == ["Good morning", "You said: Good morning"]
    first, second = client.list_messages("five-lines").data
    assert (second.from_agent, second.in_reply_to) == ("five-lines", first.message_id)


async def test_it_joins_with_the_rules_that_it_is_given(service: Service, client: ConvokeClient) -> None:
    rules = {"wake": "targeted", "catch_up": "latest", "max_age_s": 3600}
    async with served(lambda _: None, service.url, agent_id="with-rules", meetings=["with-rules"], **rules):
        await away(joined, client, "with-rules")
    member = client.list_meeting_instances("with-rules").data[0]
    assert (member.wake, member.catch_up, member.max_age_s) == ("targeted", "latest", 3600)


async def test_it_learns_how_many_messages_its_rules_kept_from_it(service: Service, client: ConvokeClient) -> None:
    def agent(push: Push) -> Answer:
        return f"missed {push.missed}"

    async with served(agent, service.url, agent_id="missed", meetings=["missed"], wake="targeted"):
        await away(joined, client, "missed")
        for _ in range(2):
            client.send_message("missed", {"content": "to all"})
        client.send_message("missed", {"content": "to you"}, target_agents=["missed"])
        assert (await away(said, client, "missed", 4))[-1] == "missed 2"


@pytest.mark.parametrize(
    ("answer", "contents"),
    [
        ("a text", ["a text"]),
        ({"content": "a message"}, ["a message"]),
        (["one", {"content": "two"}, Reply("three", target_agents=["ben"])], ["one", "two", "three"]),
        (None, []),
        ("", []),
    ],
    ids=["text", "message", "several", "none", "empty"],
)
async def test_what_an_agent_may_say(
    service: Service, client: ConvokeClient, answer: Answer, contents: list[str], request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    async with served(lambda _: answer, service.url, agent_id=name, meetings=[name]):
        await away(joined, client, name)
        client.send_message(name, {"content": "question"})
        await away(until, "its end", lambda: client.list_deliveries(meeting_id=name, state="delivered").data)
        assert said(client, name, 1 + len(contents)) == ["question", *contents]


async def test_meetings_do_not_wait_for_each_other_and_each_is_in_order(
    service: Service, client: ConvokeClient
) -> None:
    seen: dict[str, list[Any]] = {"side-a": [], "side-b": []}
    b_is_done = threading.Event()

    def agent(push: Push) -> None:
        if push.meeting_id == "side-a":
            assert b_is_done.wait(60)
        seen[push.meeting_id].append(push.message["content"])
        if len(seen["side-b"]) == 3:
            b_is_done.set()

    async with served(agent, service.url, agent_id="side", meetings=["side-a", "side-b"]):
        await away(joined, client, "side-b")
        for number in range(3):
            for meeting_id in seen:
                client.send_message(meeting_id, {"content": number})
        await away(until, "all of a", lambda: len(seen["side-a"]) == 3)
    assert seen == {"side-a": [0, 1, 2], "side-b": [0, 1, 2]}


def settled(client: ConvokeClient, meeting_id: str, attempts: int) -> None:
    """Waits until so many attempts of the only delivery are settled."""
    until("it waits", lambda: client.list_deliveries(meeting_id=meeting_id).data[0].attempt_count == attempts)


async def test_an_agent_that_raises_runs_again_and_what_it_raised_is_reported(
    service: Service, client: ConvokeClient
) -> None:
    errors: list[tuple[str, str]] = []
    runs: list[str] = []

    def agent(push: Push) -> Answer:
        runs.append(push.webhook_id)
        if len(runs) == 1:
            raise RuntimeError("no")
        if len(runs) == 2:
            return 42  # type: ignore[return-value]
        return "better"

    async with served(
        agent,
        service.url,
        agent_id="raises",
        meetings=["raises"],
        on_error=lambda error, push: errors.append((str(error), push.meeting_id)),
    ):
        await away(joined, client, "raises")
        client.send_message("raises", {"content": "question"})
        for count in (1, 2):
            await away(until, "a failure", lambda count=count: len(errors) == count)
            await away(settled, client, "raises", count)
            client.retry_delivery(client.list_deliveries(meeting_id="raises").data[0].delivery_id)
        assert await away(said, client, "raises", 2) == ["question", "better"]
    assert len(set(runs)) == 1
    assert errors == [
        ("no", "raises"),
        ("an agent answers with a text, a mapping, a Reply, a list of these, or None, not int", "raises"),
    ]


async def test_an_agent_that_raises_stop_iteration_is_reported_too(service: Service, client: ConvokeClient) -> None:
    errors: list[BaseException] = []

    def agent(_: Push) -> Answer:
        return next(iter(()))

    async with served(
        agent, service.url, agent_id="iterates", meetings=["iterates"], on_error=lambda error, _: errors.append(error)
    ):
        await away(joined, client, "iterates")
        client.send_message("iterates", {"content": "question"})
        await away(until, "the report", lambda: errors)
    assert [type(error.__cause__) for error in errors] == [StopIteration]


async def test_an_agent_that_awaits_a_cancelled_task_runs_again_and_that_is_reported(
    service: Service, client: ConvokeClient
) -> None:
    errors: list[BaseException] = []
    runs: list[str] = []

    async def agent(push: Push) -> Answer:
        runs.append(push.webhook_id)
        if len(runs) == 1:
            child = asyncio.ensure_future(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(child.cancel)
            await child
        return "better"

    async with served(
        agent,
        service.url,
        agent_id="cancelled",
        meetings=["cancelled"],
        on_error=lambda error, _: errors.append(error),
    ):
        await away(joined, client, "cancelled")
        client.send_message("cancelled", {"content": "question"})
        await away(until, "the report", lambda: errors)
        await away(settled, client, "cancelled", 1)
        client.retry_delivery(client.list_deliveries(meeting_id="cancelled").data[0].delivery_id)
        assert await away(said, client, "cancelled", 2) == ["question", "better"]
    assert [type(error) for error in errors] == [asyncio.CancelledError]


async def test_when_it_is_cancelled_so_are_the_agents_and_nothing_is_reported(
    service: Service, client: ConvokeClient
) -> None:
    errors: list[BaseException] = []
    is_running, was_cancelled = asyncio.Event(), asyncio.Event()

    async def agent(_: Push) -> None:
        is_running.set()
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    serving = asyncio.ensure_future(
        serve_agent_async(
            agent,
            agent_id="given-up",
            meetings=["given-up"],
            base_url=service.url,
            on_error=lambda error, _: errors.append(error),
        )
    )
    await away(joined, client, "given-up")
    client.send_message("given-up", {"content": "question"})
    await asyncio.wait_for(is_running.wait(), DEADLINE_S)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await asyncio.wait_for(was_cancelled.wait(), DEADLINE_S)
    assert errors == []


async def test_it_waits_for_a_service_that_is_not_there_yet(own_service: Service) -> None:
    own_service.stop()
    async with served(lambda push: "here", own_service.url, agent_id="early", meetings=["early"]):
        await asyncio.sleep(0)
        own_service.start()
        with ConvokeClient(own_service.url) as client:
            await away(joined, client, "early")
            client.send_message("early", {"content": "question"})
            assert await away(said, client, "early", 2) == ["question", "here"]


class PageNotFound(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


async def test_it_waits_while_something_else_responds_in_place_of_convoke_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), PageNotFound) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with served(lambda _: None, f"http://127.0.0.1:{server.server_port}", agent_id="in-front"):
            await away(until, "a line", lambda: caplog.records)
        server.shutdown()
    (line,) = [record.getMessage() for record in caplog.records]
    assert re.match(r"reconnecting: unexpected_response \(404\): .* is no response of Convoke; check base_url", line)


class Busy(BaseHTTPRequestHandler):
    """Asks for a pause of a minute, or does not respond at all."""

    is_silent: bool
    asked: threading.Event
    may_end: threading.Event

    def do_POST(self) -> None:
        self.asked.set()
        if self.is_silent:
            self.may_end.wait()
        text = b'{"type": "t", "title": "t", "status": 503, "detail": "Later.", "code": "overloaded"}'
        self.send_response(503)
        self.send_header("retry-after", "20")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "overloaded"])
async def test_what_waits_for_a_busy_service_ends_at_once(is_silent: bool) -> None:
    codes: list[str] = []
    asked, may_end = threading.Event(), threading.Event()
    handler = type("Handler", (Busy,), {"is_silent": is_silent, "asked": asked, "may_end": may_end})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        async with served(lambda _: None, url, agent_id="busy", on_connection=noted(codes)):
            assert await away(asked.wait, DEADLINE_S)
            await away(until, "the response, if there is one", lambda: is_silent or codes)
            ended_at_s = time.monotonic()
        assert time.monotonic() - ended_at_s < 5
        may_end.set()
        server.shutdown()


async def test_meetings_that_are_a_text_are_refused() -> None:
    with pytest.raises(TypeError, match="meetings must be a list"):
        await serve_agent_async(lambda _: None, agent_id="x", meetings="standup-42", base_url="http://127.0.0.1:1")


async def test_what_waits_for_a_service_can_be_ended(own_service: Service) -> None:
    own_service.stop()
    try:
        async with served(lambda push: None, own_service.url, agent_id="ended", meetings=["ended"]):
            pass
    finally:
        own_service.start()


async def test_the_log_says_once_that_the_service_is_lost_and_that_it_is_back(
    own_service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[str]:
        records = [record for record in caplog.records if record.name == "convoke_agents"]
        return [record.getMessage() for record in records if record.levelno >= logging.WARNING]

    own_service.stop()
    async with served(lambda _: None, own_service.url, agent_id="log"):
        await away(until, "a loss", lines)
        await away(own_service.start)
        await away(until, "its end", lambda: len(lines()) > 1)
    lost, back = lines()
    assert lost.startswith("reconnecting: unreachable: cannot reach ")
    assert back == "Convoke responds again"


async def test_it_registers_and_joins_again_when_its_instance_was_deleted(
    service: Service, client: ConvokeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convoke_agents.serve._ON_PURPOSE_S", 0.0)
    codes: list[str] = []
    options = {"agent_id": "gone", "meetings": ["gone"]}
    async with served(lambda _: "still here", service.url, on_connection=noted(codes), **options):
        await away(joined, client, "gone")
        for count in (2, 4):
            client.delete_instance("gone")
            await away(joined, client, "gone")
            client.send_message("gone", {"content": "question"})
            assert (await away(said, client, "gone", count))[-1] == "still here"
    assert codes == ["instance_does_not_exist"] * 2


async def test_it_ends_when_its_instance_is_deleted_twice_within_a_minute(
    service: Service, client: ConvokeClient
) -> None:
    serving = asyncio.ensure_future(
        serve_agent_async(lambda _: None, agent_id="unwanted", meetings=["unwanted"], base_url=service.url)
    )
    for _ in range(2):
        await away(joined, client, "unwanted")
        client.delete_instance("unwanted")
    with pytest.raises(ConvokeError, match="instance_does_not_exist"):
        await serving
    assert client.list_instances(q="unwanted").data == []


async def test_it_registers_nothing_again_when_its_instance_is_deleted_while_it_ends(
    service: Service, client: ConvokeClient
) -> None:
    codes: list[str] = []
    is_running, may_end = asyncio.Event(), asyncio.Event()

    async def agent(_: Push) -> None:
        is_running.set()
        await may_end.wait()

    async with served(agent, service.url, agent_id="left", meetings=["left"], on_connection=noted(codes)):
        await away(joined, client, "left")
        client.send_message("left", {"content": "question"})
        await asyncio.wait_for(is_running.wait(), DEADLINE_S)
        asyncio.get_running_loop().call_soon(may_end.set)
        client.delete_instance("left")
    assert codes == []
    assert client.list_instances(q="left").data == []


async def test_what_is_refused_is_raised(own_service: Service) -> None:
    with ConvokeClient(own_service.url) as client:
        client.create_key(scopes=["admin"])
    with pytest.raises(ConvokeError) as caught:
        await serve_agent_async(lambda _: None, agent_id="x", base_url=own_service.url)
    assert caught.value.status == 401


async def test_with_a_secret_of_its_own_it_verifies(service: Service, client: ConvokeClient) -> None:
    secret = "whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o="
    async with served(lambda _: "genuine", service.url, agent_id="own", meetings=["own"], secret=secret):
        await away(joined, client, "own")
        client.send_message("own", {"content": "question"})
        assert await away(said, client, "own", 2) == ["question", "genuine"]


PROGRAM = """
import sys
from convoke_agents import serve_agent

def answer(push):
    print("asked", flush=True)
    return sys.stdin.readline().strip()

serve_agent(answer, agent_id=sys.argv[1], meetings=[sys.argv[1]])
print("ended", flush=True)
"""


def program(service: Service, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name],
        env={**os.environ, "CONVOKE_URL": service.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a program cannot be asked to end there")
@pytest.mark.parametrize("signal_name", ["SIGTERM", "SIGINT"])
async def test_a_signal_lets_the_answers_in_progress_reach_the_meeting(
    service: Service, client: ConvokeClient, signal_name: str
) -> None:
    with program(service, signal_name) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        await away(joined, client, signal_name)
        client.send_message(signal_name, {"content": "question"})
        assert await away(running.stdout.readline) == "asked\n"
        running.send_signal(signal.Signals[signal_name])
        running.stdin.write("an answer in time\n")
        running.stdin.flush()
        assert await away(running.stdout.readline) == "ended\n"
    assert running.returncode == 0
    assert said(client, signal_name, 2) == ["question", "an answer in time"]


@pytest.mark.skipif(sys.platform == "win32", reason="a program cannot be asked to end there")
async def test_a_second_signal_ends_the_process(service: Service, client: ConvokeClient) -> None:
    with program(service, "twice") as running:
        assert running.stdout is not None
        await away(joined, client, "twice")
        client.send_message("twice", {"content": "question"})
        assert await away(running.stdout.readline) == "asked\n"
        # The agent answers nothing, so only a second signal ends the process. The first one may not have arrived yet.
        while running.poll() is None:
            running.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.05)
    assert running.returncode == -signal.SIGTERM
