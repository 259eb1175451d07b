"""An agent as a function, which takes part in meetings from wherever it runs."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar, cast

from convoke_agents.answers import Agent
from convoke_agents.async_client import AsyncConvokeClient
from convoke_agents.backoff import Backoff
from convoke_agents.errors import ConvokeError
from convoke_agents.number_option import check_number
from convoke_agents.pull import OnConnection, PushInHand
from convoke_agents.verify import Push

_DEFAULT_URL = "http://127.0.0.1:8080"
# A turn of a language model takes up to two minutes.
TURN_S = 120
CONCURRENCY = 16
# When an instance is missing twice within this time, somebody removes it on purpose.
_ON_PURPOSE_S = 60.0

OnError = Callable[[BaseException, Push], None]

T = TypeVar("T")
_log = logging.getLogger("convoke_agents")


def serve_agent(
    agent: Agent,
    *,
    agent_id: str,
    meetings: Sequence[str] = (),
    wake: Literal["all", "targeted", "people"] | None = None,
    catch_up: Literal["all", "latest"] | None = None,
    max_age_s: int | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    instance_id: str | None = None,
    instance_name: str | None = None,
    turn_s: int = TURN_S,
    concurrency: int = CONCURRENCY,
    secret: str | None = None,
    on_error: OnError | None = None,
    on_connection: OnConnection | None = None,
) -> None:
    """Lets an agent take part in meetings from wherever it runs, behind a firewall too.

    Registers it as an instance that pulls, joins its meetings, and sends each of its answers as a reply in the meeting
    of the push.

        serve_agent(lambda push: think(push.message), agent_id="anna", meetings=["standup-42"])

    Waits for a service that cannot be reached, at the start and later. Registers and joins again when its instance was
    deleted, unless that happens twice within a minute. SIGTERM and SIGINT end the agent when the pushes in progress
    have their answers; a second signal ends the process.

    :param agent: A function, `def` or `async def`, from a `Push` to an `Answer`: a text, a message, several, or None.
        It runs once for a push; when it raises, Convoke pushes again later. A `def` runs in a thread.
    :param meetings: Meetings to join at the start. The agent also stays in those that it joined before.
    :param wake: Which messages are pushed in these meetings. When absent, the choice of an earlier join stays; without
        an earlier join it is `all`.
    :param catch_up: Which of the messages that waited while the machine was away are pushed: `all`, or only the
        `latest`.
    :param max_age_s: How old a message may be, in seconds. An older message is no longer pushed. 0: a message of any
        age is pushed.
    :param base_url: The URL of Convoke; the variable CONVOKE_URL when absent, or else http://127.0.0.1:8080.
    :param api_key: The variable CONVOKE_API_KEY when absent.
    :param instance_id: The agent_id when absent. Keep it the same at every start: then the agent gets the messages that
        waited while it was away.
    :param instance_name: The name that people see; the instance_id when absent.
    :param turn_s: How long the agent may take for a push, 600 at most. After that time the push arrives again later.
    :param concurrency: How many meetings are answered at a time. Messages of one meeting arrive one after the other.
    :param secret: `whsec_` and the base64 of 24 to 64 bytes: registers with it, and verifies every push.
    :param on_error: Called with the exception of the agent. When absent, the logger `convoke_agents` gets the
        exception.
    :param on_connection: Called when the service responds, and when it is lost. When absent, the logger gets these
        reports.
    :raises ConvokeError: the service refuses the agent, or its instance was deleted twice within a minute
    :raises ValueError: a number is NaN or too small
    :raises TypeError: meetings is a text
    """
    asyncio.run(
        serve_agent_async(
            agent,
            agent_id=agent_id,
            meetings=meetings,
            wake=wake,
            catch_up=catch_up,
            max_age_s=max_age_s,
            base_url=base_url,
            api_key=api_key,
            instance_id=instance_id,
            instance_name=instance_name,
            turn_s=turn_s,
            concurrency=concurrency,
            secret=secret,
            on_error=on_error,
            on_connection=on_connection,
        )
    )


async def serve_agent_async(
    agent: Agent,
    *,
    agent_id: str,
    meetings: Sequence[str] = (),
    wake: Literal["all", "targeted", "people"] | None = None,
    catch_up: Literal["all", "latest"] | None = None,
    max_age_s: int | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    instance_id: str | None = None,
    instance_name: str | None = None,
    turn_s: int = TURN_S,
    concurrency: int = CONCURRENCY,
    secret: str | None = None,
    on_error: OnError | None = None,
    on_connection: OnConnection | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """As `serve_agent`, in an event loop that runs already.

    :param stop: When this event is set, the agent ends. Without an event, a signal ends the agent.
    """
    check_number("concurrency", concurrency, 1)
    check_number("turn_s", turn_s, 1)
    if max_age_s is not None:
        check_number("max_age_s", max_age_s, 0)
    if isinstance(meetings, str):
        # A text is a sequence of texts too: the agent would join a meeting for each of its letters.
        raise TypeError("meetings must be a list, such as ['standup-42']")
    instance_id = agent_id if instance_id is None else instance_id
    say = _connection_logged() if on_connection is None else on_connection
    client = AsyncConvokeClient(
        base_url or os.environ.get("CONVOKE_URL") or _DEFAULT_URL,
        api_key=api_key or os.environ.get("CONVOKE_API_KEY") or None,
        # `_enter` tries again by itself, and meanwhile sees whether the agent is to end.
        send_attempts_max=1,
    )
    ending = asyncio.Event() if stop is None else stop
    answering: set[asyncio.Task[None]] = set()
    threads = ThreadPoolExecutor(concurrency, thread_name_prefix="convoke-agent")
    join = partial(
        client.join_meeting,
        instance_id=instance_id,
        agent_ids=[agent_id],
        wake=wake,
        catch_up=catch_up,
        max_age_s=max_age_s,
    )
    joins = [partial(join, meeting_id=meeting_id) for meeting_id in meetings]
    entering = partial(_enter, client, instance_id, agent_id, joins, say, ending)

    async def take_part() -> None:
        if not await entering(instance_name or instance_id, turn_s, secret):
            return
        async with client.pull(instance_id, concurrency=concurrency, secret=secret, on_connection=say) as pulling:
            stopping = asyncio.ensure_future(_stop_when(ending, pulling.stop))
            try:
                async for push in pulling:
                    task = asyncio.ensure_future(_respond(push, agent, threads, on_error or _log_error))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
            finally:
                stopping.cancel()

    try:
        with _ended_by_signals(ending, stop is None):
            await _stay_registered(take_part, say, ending)
    finally:
        for task in answering:
            task.cancel()
        threads.shutdown(wait=False, cancel_futures=True)
        await client.aclose()


async def _stay_registered(take_part: Callable[[], Awaitable[None]], say: OnConnection, ending: asyncio.Event) -> None:
    """Takes part again when the service no longer has the instance.

    Somebody deleted the instance, or restored a backup from before its registration. When that happens again within a
    minute, somebody removes the instance on purpose, and the error is raised.
    """
    missing_at_s = float("-inf")
    while True:
        try:
            await take_part()
        except ConvokeError as error:
            if error.code != "instance_does_not_exist" or time.monotonic() - missing_at_s < _ON_PURPOSE_S:
                raise
            if ending.is_set():
                return
            missing_at_s = time.monotonic()
            say("reconnecting", error)
        else:
            return


async def _enter(
    client: AsyncConvokeClient,
    instance_id: str,
    agent_id: str,
    joins: Sequence[Callable[[], Awaitable[object]]],
    say: OnConnection,
    ending: asyncio.Event,
    instance_name: str,
    turn_s: int,
    secret: str | None,
) -> bool:
    """Registers and joins, and tries until both succeed. False when the agent was stopped before that."""

    async def register() -> object:
        return await client.register(
            instance_id=instance_id,
            instance_name=instance_name,
            agent_ids=[agent_id],
            transport="pull",
            replies=True,
            ack_timeout_s=turn_s,
            webhook_secret=secret,
        )

    calls: list[Callable[[], Awaitable[object]]] = [register, *joins]
    for call in calls:
        backoff, said = Backoff(), set[str]()
        while not ending.is_set():
            try:
                if await _ends_first(ending, call()):
                    return False
                break
            except ConvokeError as error:
                if not error.is_waited_out:
                    raise
                if error.code not in said:
                    said.add(error.code)
                    say("reconnecting", error)
                await _ends_first(ending, asyncio.sleep(backoff.pause_after_s(error)))
    return not ending.is_set()


async def _ends_first(ending: asyncio.Event, work: Awaitable[object]) -> bool:
    """Does the work unless the agent is to end first: then cancels the work, and returns True."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return True
        working.result()
        return False
    finally:
        for each in (working, waiting):
            each.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _respond(push: PushInHand, agent: Agent, threads: ThreadPoolExecutor, on_error: OnError) -> None:
    if push.test:
        push.respond()
        return
    # The agent runs in a task of its own. Otherwise this task would look cancelled when the agent awaits another task
    # that is cancelled.
    call = asyncio.ensure_future(call_agent(agent, push, threads))
    try:
        await asyncio.wait({call})
    finally:
        call.cancel()
    try:
        push.respond(reply=cast("Any", call.result()))
    except (Exception, asyncio.CancelledError) as error:
        push.respond(500, body="the agent failed; its log has the reason")
        on_error(error, push)


async def call_agent(agent: Callable[[Push], Any], push: Push, threads: ThreadPoolExecutor | None) -> object:
    """The answer of the agent. An agent that is a plain `def` would block the event loop, so it runs in a thread, with
    the context variables of the caller."""
    called = getattr(agent, "__call__", agent)  # noqa: B004 - the method of an object may be the one that is async
    if inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(called):
        return await cast("Awaitable[object]", agent(push))
    context = contextvars.copy_context()

    def run() -> object:
        try:
            return context.run(agent, push)
        except StopIteration as error:
            # A future of asyncio takes no StopIteration, so the call would never end.
            raise RuntimeError("the agent raised StopIteration") from error

    answer = await asyncio.get_running_loop().run_in_executor(threads, run)
    return await cast("Awaitable[object]", answer) if inspect.isawaitable(answer) else answer


async def _stop_when(ending: asyncio.Event, stop: Callable[[], None]) -> None:
    await ending.wait()
    stop()


@contextmanager
def _ended_by_signals(ending: asyncio.Event, is_wanted: bool) -> Generator[None, None, None]:
    """The first SIGTERM or SIGINT sets `ending`, a second one ends the process. Only the main thread gets signals."""
    if not is_wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    names = (signal.SIGTERM, signal.SIGINT)
    before = {name: signal.getsignal(name) for name in names}

    def end(number: int, _: object) -> None:
        for name in names:
            signal.signal(name, signal.SIG_DFL)
        loop.call_soon_threadsafe(ending.set)

    try:
        for name in names:
            signal.signal(name, end)
        yield
    finally:
        for name in names:
            signal.signal(name, before[name] or signal.SIG_DFL)


def _log_error(error: BaseException, push: Push) -> None:
    _log.error("the agent failed in %s, at #%s", push.meeting_id, push.seq, exc_info=error)


def _connection_logged() -> OnConnection:
    """Logs a loss, and the return after a loss, as warnings: without a configuration, logging shows nothing else."""
    is_lost = False

    def say(state: str, error: ConvokeError | None) -> None:
        nonlocal is_lost
        if error is not None:
            _log.warning("%s: %s", state, error)
        elif is_lost:
            _log.warning("Convoke responds again")
        else:
            _log.info("%s", state)
        is_lost = error is not None

    return say
