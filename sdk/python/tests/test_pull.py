"""Pulling, against the real service."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import DEADLINE_S, Service, enter, said, until

from convoke_agents import AsyncConvokeClient, ConvokeClient, ConvokeError, PushInHand
from convoke_agents.backoff import Backoff


def outcome_of(client: ConvokeClient, meeting_id: str) -> tuple[str, int | None, int]:
    """Waits for an attempt of a meeting's first delivery. Returns its state, its last status, and the number of
    attempts."""

    def look() -> tuple[str, int | None, int] | None:
        delivery = client.list_deliveries(meeting_id=meeting_id).data[-1]
        last = delivery.last_attempt
        return None if last is None else (delivery.state, last.status_code, delivery.attempt_count)

    return until(f"an attempt in {meeting_id}", look)


def test_pushes_arrive_in_order_and_their_replies_are_in_the_meeting(client: ConvokeClient) -> None:
    enter(client, "in-order", "in-order")
    for number in range(5):
        client.send_message("in-order", {"content": str(number)}, from_agent="ben")
    seen: list[PushInHand] = []
    for push in client.pull("in-order"):
        seen.append(push)
        push.respond(reply=f"heard {push.message['content']}" if len(seen) == 5 else None)
        if len(seen) == 5:
            break
    assert [push.message["content"] for push in seen] == ["0", "1", "2", "3", "4"]
    assert [push.seq for push in seen] == [1, 2, 3, 4, 5]
    assert {push.from_agent for push in seen} == {"ben"}
    # Leaving the loop has handed in the last result.
    assert said(client, "in-order", 6)[-1] == "heard 4"


def test_a_trace_goes_from_the_sender_to_the_push_and_to_a_later_reply(client: ConvokeClient) -> None:
    client.register(instance_id="traced", instance_name="Traced", agent_ids=["anna"], transport="pull", replies=True)
    client.join_meeting(instance_id="traced", meeting_id="traced", agent_ids=["anna"])
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    client.send_message("traced", {"content": "question"}, traceparent=trace, tracestate="a=1")
    client.send_message("traced", {"content": "later"})
    seen: list[PushInHand] = []
    for push in client.pull("traced"):
        seen.append(push)
        push.respond()
        if len(seen) == 2:
            break
    assert [(push.traceparent, push.tracestate) for push in seen] == [(trace, "a=1"), (None, None)]
    assert seen[0].reply_token is not None
    reply = client.send_reply(seen[0].reply_token, "answer", traceparent=trace)
    assert reply.meeting_id == "traced"


def test_a_result_may_come_from_another_thread_while_others_are_handed_out(client: ConvokeClient) -> None:
    for meeting_id in ("thread-a", "thread-b"):
        enter(client, "threads", meeting_id)
        client.send_message(meeting_id, {"content": meeting_id})
    both_run = threading.Barrier(2, timeout=60)

    def work(push: PushInHand) -> None:
        # Passes only when the other meeting's push is worked on at the same time.
        both_run.wait()
        push.respond(reply=f"{push.meeting_id} was heard")

    with ThreadPoolExecutor(2) as pool, client.pull("threads", concurrency=2) as pulling:
        for number, push in enumerate(pulling):
            pool.submit(work, push)
            if number == 1:
                pulling.stop()
    for meeting_id in ("thread-a", "thread-b"):
        assert said(client, meeting_id, 2) == [meeting_id, f"{meeting_id} was heard"]


@pytest.mark.anyio
async def test_the_async_iterator_gives_the_pushes_of_several_meetings_at_once(
    service: Service, client: ConvokeClient
) -> None:
    for meeting_id in ("async-a", "async-b"):
        enter(client, "async-pull", meeting_id)
        client.send_message(meeting_id, {"content": meeting_id})
    async with AsyncConvokeClient(service.url) as async_client:
        held: list[PushInHand] = []
        async with async_client.pull("async-pull", concurrency=2) as pulling:
            async for push in pulling:
                held.append(push)
                if len(held) == 2:
                    break
            for push in held:
                push.respond(reply=f"{push.meeting_id} was heard")
    assert {push.meeting_id for push in held} == {"async-a", "async-b"}
    for meeting_id in ("async-a", "async-b"):
        assert said(client, meeting_id, 2) == [meeting_id, f"{meeting_id} was heard"]


@pytest.mark.anyio
@pytest.mark.parametrize("answers", ["before", "after"])
async def test_a_push_that_is_handed_out_again_is_not_given_twice(
    service: Service, client: ConvokeClient, answers: str
) -> None:
    name = f"late-{answers}"
    enter(client, name, name, ack_timeout_s=1)
    client.send_message(name, {"content": "slow"})
    client.send_message(name, {"content": "next"})
    seen: list[str] = []

    def handle(push: PushInHand) -> None:
        until("the deadline", lambda: push.is_late)
        outcome_of(client, name)
        client.update_instance(name, ack_timeout_s=60)
        if answers == "before":
            push.respond()
            client.retry_delivery(push.delivery_id)
        else:
            client.retry_delivery(push.delivery_id)
            until("it is handed out again, and joins this call", lambda: not push.is_late)
            push.respond()

    async with AsyncConvokeClient(service.url) as async_client, async_client.pull(name) as pulling:
        async for push in pulling:
            seen.append(push.message["content"])
            if len(seen) == 2:
                push.respond()
                break
            await asyncio.to_thread(handle, push)
    assert seen == ["slow", "next"]
    until("both are delivered", lambda: len(client.list_deliveries(meeting_id=name, state="delivered").data) == 2)


def test_pulling_goes_on_after_a_restart_of_the_service(own_service: Service) -> None:
    states: list[str] = []
    with ConvokeClient(own_service.url, send_attempts_max=1) as client:
        enter(client, "restart", "restart")
        client.send_message("restart", {"content": "one"})
        seen: list[str] = []
        for push in client.pull("restart", on_connection=lambda state, _: states.append(state)):
            seen.append(push.message["content"])
            push.respond()
            if seen == ["one"]:
                until("the result of one", lambda: client.list_deliveries(state="delivered").data)
                own_service.stop()
                until("it is lost", lambda: states[-1] == "reconnecting")
                own_service.start()
                client.send_message("restart", {"content": "two"})
            else:
                break
    assert seen == ["one", "two"]
    assert states == ["connected", "reconnecting", "connected"]


def test_with_the_secret_a_push_is_verified(client: ConvokeClient) -> None:
    secret = enter(client, "verified", "verified")
    client.send_message("verified", {"content": "genuine"})
    for push in client.pull("verified", secret=secret):
        push.respond()
        break
    until("it is delivered", lambda: client.list_deliveries(meeting_id="verified", state="delivered").data)


def test_a_push_that_is_not_genuine_is_refused_and_reaches_nobody(client: ConvokeClient) -> None:
    enter(client, "forged", "forged")
    client.send_message("forged", {"content": "forged"})
    other = "whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o="
    pulling = client.pull("forged", secret=other)
    reached: list[PushInHand] = []
    loop = threading.Thread(target=lambda: reached.extend(pulling))
    loop.start()
    try:
        state, status_code, _ = outcome_of(client, "forged")
    finally:
        pulling.stop()
        loop.join()
    assert (state, status_code, reached) == ("pending", 401, [])


def test_a_push_that_is_given_back_keeps_its_place(client: ConvokeClient) -> None:
    enter(client, "back", "back")
    client.send_message("back", {"content": "one"})
    for number, push in enumerate(client.pull("back")):
        if number == 0:
            push.give_back("not now")
            until("it waits", lambda: client.list_deliveries(meeting_id="back").data[0].last_attempt)
            client.heartbeat("back")
        else:
            assert push.message["content"] == "one"
            push.respond()
            break
    until("it is delivered", lambda: client.list_deliveries(meeting_id="back", state="delivered").data)


def test_a_status_that_the_service_would_refuse_is_handed_in_as_502_and_the_pull_goes_on(client: ConvokeClient) -> None:
    statuses: list[Any] = [0, 101, 600, 200.5, None]
    for number in range(len(statuses)):
        enter(client, "statuses", f"status-{number}")
        client.send_message(f"status-{number}", {"content": "question"})
    for count, push in enumerate(client.pull("statuses"), 1):
        push.respond(statuses[int(push.meeting_id.removeprefix("status-"))])
        if count == len(statuses):
            break
    for number, status in enumerate(statuses):
        assert outcome_of(client, f"status-{number}") == ("pending", 502, 1)
        (delivery,) = client.list_deliveries(meeting_id=f"status-{number}").data
        (attempt,) = client.get_delivery(delivery.delivery_id).attempts
        assert attempt.response_excerpt == f"the status {status} is none of 200 to 599"


def test_what_is_refused_for_good_ends_the_iteration(client: ConvokeClient) -> None:
    with pytest.raises(ConvokeError, match="instance_does_not_exist"):
        next(client.pull("nobody"))
    client.register(instance_id="webhook", instance_name="x", agent_ids=["a"], webhook_url="http://127.0.0.1:9/convoke")
    with pytest.raises(ConvokeError, match="invalid_fields"):
        next(client.pull("webhook"))


def test_stopped_before_it_began_it_gives_nothing(client: ConvokeClient) -> None:
    enter(client, "stopped", "stopped")
    pulling = client.pull("stopped")
    pulling.stop()
    assert list(pulling) == []


@pytest.mark.parametrize(
    "ends",
    [
        "pushes = client.pull(name)\nnext(pushes)",
        "def run():\n    pushes = client.pull(name)\n    for push in pushes:\n        raise ValueError\nrun()",
        "events = client.stream_events(on_connection=lambda *_: client.send_message(name, {}))\nnext(events)",
        "begun = threading.Event()\npushes = client.pull(name, on_connection=lambda *_: begun.set())\n"
        "threading.Thread(target=list, args=[pushes], daemon=True).start()\nbegun.wait()",
    ],
    ids=["in-a-variable", "raises", "feed", "in-a-thread"],
)
def test_a_program_ends_although_it_has_not_left_an_iteration(
    client: ConvokeClient, request: pytest.FixtureRequest, ends: str
) -> None:
    name = f"exit-{request.node.callspec.id}"
    enter(client, name, name)
    client.send_message(name, {"content": "question"})
    begin = "import sys, threading\nfrom convoke_agents import ConvokeClient\n_, url, name = sys.argv\n"
    program = f"{begin}client = ConvokeClient(url)\n{ends}\n"
    done = subprocess.run(
        [sys.executable, "-c", program, client.base_url, name], timeout=DEADLINE_S, capture_output=True, text=True
    )
    assert ("ValueError" in done.stderr) == (done.returncode == 1) == ("raise" in ends), done.stderr


def test_pauses_stay_short_while_nothing_is_there_and_grow_while_it_is_busy() -> None:
    now_s = 0.0
    backoff = Backoff(lambda: now_s, lambda: 1.0)
    away = ConvokeError("unreachable", "away")
    assert [backoff.pause_after_s(away) for _ in range(4)] == [0.1, 0.2, 0.4, 0.5]
    now_s = 60.0
    assert [backoff.pause_after_s(away) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    busy = ConvokeError("overloaded", "busy", status=503)
    assert [backoff.pause_after_s(busy) for _ in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert backoff.pause_after_s(ConvokeError("overloaded", "busy", status=503, retry_after_s=9)) == 9
    assert backoff.pause_after_s(ConvokeError("overloaded", "busy", status=503, retry_after_s=86_400)) == 60
    assert backoff.pause_after_s(ConvokeError("unexpected_response", "a page", status=503, retry_after_s=86_400)) == 5


def test_the_live_feed_tells_what_happens_and_goes_on_after_a_restart(own_service: Service) -> None:
    with ConvokeClient(own_service.url) as client:
        seen: list[int] = []

        def say(state: str, _: object) -> None:
            if state == "connected":
                client.send_message("feed", {"content": "x"})

        for event in client.stream_events(meeting_id="feed", on_connection=say):
            if event.name != "message.accepted":
                continue
            seen.append(event.data["seq"])
            if len(seen) == 2:
                break
            own_service.stop()
            own_service.start()
    assert seen == [1, 2]


@pytest.mark.anyio
async def test_the_live_feed_is_an_async_iterator_too(service: Service, client: ConvokeClient) -> None:
    async with AsyncConvokeClient(service.url) as async_client:
        events = async_client.stream_events(
            meeting_id="async-feed",
            on_connection=lambda state, _: client.send_message("async-feed", {}) if state == "connected" else None,
        )
        async for event in events:
            assert (event.name, event.data["seq"]) == ("message.accepted", 1)
            break
        await events.aclose()
