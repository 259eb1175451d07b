"""The pushes of an instance that pulls, as an async iterator."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import httpx

from convoke_agents.answers import Answer, reply_body
from convoke_agents.backoff import Backoff
from convoke_agents.errors import ConvokeError, sent_at
from convoke_agents.json_text import json_text
from convoke_agents.models import Pulled, PulledPush
from convoke_agents.number_option import check_number
from convoke_agents.remembered import Remembered
from convoke_agents.requests import AsyncRequests, Target, read, segment
from convoke_agents.results import Result, ResultQueue, is_success, not_reached_result, response_result
from convoke_agents.verify import Push, VerificationError, decode_secrets, read_push, verify_signature

# How long the service keeps a request without pushes: many proxies end a request after 60 s without a byte. Each new
# request costs the service as much as a push, so the time is not shorter. A connection that died in silence is noticed
# after this time and the grace.
_WAIT_S = 55
_GRACE_S = 5.0
# The slowest link on which pulling works. A request with results has so much more time.
_LINK_BYTES_PER_S = 4_000
# How long the pushes of a response, which have half a megabyte at most, may take once its head is there.
_PUSHES_S_MAX = 40.0
# While a machine sleeps, timers stand still and the wall clock does not, so the wall clock is read this often.
_LOOK_S = 1.0
# How long an iteration that is ending tries to hand in its results.
_HAND_IN_S_MAX = 10.0
# The most pushes that one request asks for.
_PUSHES_MAX = 32
# The successes that are remembered, until later ones take their place: a result may wait for days in a machine that
# sleeps. And a crash of the service may lose the settlement of a success. Then Convoke pushes the message again.
_REMEMBER_S = float("inf")
_REMEMBERED_MAX = 1_000
# The most pushes without a result that are remembered; the oldest is forgotten first.
_LATE_MAX = 1_000
_ENDED = "the program that pulls has ended"

_Kind: TypeAlias = Literal["waits", "hands in"]
Connection: TypeAlias = Literal["connected", "reconnecting"]
OnConnection: TypeAlias = Callable[[Connection, "ConvokeError | None"], object]
"""Called when the service responds, and, with the error, when it is lost and will be asked again."""


@dataclass
class _Hand:
    """A push in the hands of the caller."""

    meeting_id: str
    attempt: int
    pull_id: str
    """The name of the request that brought it."""
    deadline: asyncio.TimerHandle | None = None
    has_result: bool = False
    is_late: bool = False
    """Whether the deadline has passed, or the iteration is over. The service makes a new attempt later, and this push no
    longer takes up room."""


@dataclass(frozen=True, kw_only=True)
class PushInHand(Push):
    """A push that this machine pulled and for which it must give a result. Any thread may give the result."""

    delivery_id: str
    headers: Mapping[str, str] = field(repr=False)
    """The headers that a webhook would get, the signature included."""
    deadline_at: datetime
    """When the result is due, by the clock of this machine."""
    _give: Callable[[Result], None] = field(repr=False, compare=False)
    _is_late: Callable[[], bool] = field(repr=False, compare=False)

    @property
    def is_late(self) -> bool:
        """True when the result no longer counts: its deadline has passed, or the iteration is over. The service hands
        the push out again later."""
        return self._is_late()

    def respond(
        self,
        status_code: int = 200,
        *,
        reply: Answer = None,
        body: str | None = None,
        retry_after: str | int | None = None,
    ) -> None:
        """Gives the result, as a webhook would respond. It is handed in at once.

        A second result for the same push is ignored.

        :param status_code: 200 to 599. Any other number is handed in as 502.
        :param reply: The answer of the agent in the meeting, if its instance is registered with `replies=True`.
        :param body: The response that people see, instead of `reply`. It is cut at 64 KiB.
        :param retry_after: The value of a header Retry-After: seconds, or a date.
        :raises ValueError: the reply is too long
        """
        self._give(response_result(status_code, reply_body(reply) if body is None else body, retry_after))

    def give_back(self, why: str) -> None:
        """Says that the push did not reach the agent: it keeps its place, and no retry is spent."""
        self._give(not_reached_result(why))


class AsyncPulling:
    """The pushes of one instance, pulled over as many requests as needed: `async for push in client.pull(…)`.

    When you leave the loop by `break`, put `async with client.pull(…) as pulling:` around it. Then the last results are
    handed in before the program continues.

    One request waits at the service for pushes while there is room for them. A result that is given meanwhile goes with
    a second request, which does not wait. Each of the two requests hands in results, and takes the pushes that are
    there.

    A push may be handed out again, because its result was lost or late. The caller does not get it twice: the push gets
    the result of the running call, or the remembered success.
    """

    def __init__(
        self,
        target: Target,
        instance_id: str,
        *,
        concurrency: int,
        secret: str | Sequence[str] | None,
        on_connection: OnConnection | None,
    ) -> None:
        check_number("concurrency", concurrency, 1)
        if secret is not None:
            decode_secrets(secret)
        self._target = target
        self._url = target.url_of(f"/api/v1/instances/{segment(instance_id)}/pull/", None)
        self._concurrency = concurrency
        self._secret = secret
        self._on_connection = on_connection
        self._loop: asyncio.AbstractEventLoop | None = None
        # Pushes that the caller has in hand or that wait for the caller, late pushes included; in the order of their
        # arrival.
        self._held: OrderedDict[str, _Hand] = OrderedDict()
        self._queue: deque[PushInHand] = deque()
        # By meeting: the delivery that the caller has in hand. The service may hand out two pushes of one meeting, the
        # next one and one that went aside, but the caller gets one after the other.
        self._in_hand_of: dict[str, str] = {}
        self._successes: Remembered[Result] = Remembered(
            _REMEMBER_S, _REMEMBERED_MAX, lambda result: result.get("body"), time.monotonic
        )
        self._results = ResultQueue()
        self._late = 0
        # How many pushes the open requests ask for.
        self._asked = 0
        self._is_waiting = False
        self._is_handing_in = False
        # The names of the waiting request and of the request that hands in results. A request that is repeated after
        # its response was lost keeps its name. So the service takes the pushes of the lost response back at once.
        self._pull_ids: dict[_Kind, str] = {}
        # By the name of the request that brought them: pushes that the caller had not seen when the iteration ended.
        # Under this name the service takes them back, for another machine. A report that they were not reached would
        # make the instance back off, for all machines.
        self._unseen: dict[str, list[tuple[str, int]]] = {}
        # Cuts the pause after a failure short; None while there is no pause.
        self._pausing: asyncio.Event | None = None
        self._is_connected = False
        self._is_lost = False
        self._backoff = Backoff()
        self._ending = asyncio.Event()
        self._hand_in_until_s = float("inf")
        self._error: BaseException | None = None
        self._is_over = False
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept: AsyncGenerator[PushInHand, None] | None = None

    def stop(self) -> None:
        """Takes no more pushes. Any thread may call it.

        The iteration ends as soon as the pushes in your hands have their results and these are handed in.
        """
        if self._loop is None:
            self._ending.set()
        else:
            _in_loop(self._loop, self._end)

    def __aiter__(self) -> AsyncGenerator[PushInHand, None]:
        # This object keeps no reference to the generator, so that the generator ends when the caller leaves the loop.
        return self._pushes() if self._kept is None else self._kept

    async def __aenter__(self) -> AsyncPulling:
        self._kept = self._pushes()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kept is not None:
            await self._kept.aclose()

    async def _pushes(self) -> AsyncGenerator[PushInHand, None]:
        self._loop = asyncio.get_running_loop()
        # Pulling has connections of its own, because those of the client may be closed earlier.
        self._requests = AsyncRequests(self._target)
        try:
            self._step()
            while True:
                push = await self._next()
                if push is None:
                    return
                yield push
        finally:
            try:
                await self._close()
            finally:
                # Runs even when this coroutine is cancelled, as at the end of an event loop.
                for task in list(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self._requests.aclose()

    async def _next(self) -> PushInHand | None:
        while True:
            # The result of another push could not be handed in.
            if self._error is not None:
                raise self._error
            push = next((each for each in self._queue if each.meeting_id not in self._in_hand_of), None)
            if push is not None:
                self._queue.remove(push)
                self._in_hand_of[push.meeting_id] = push.delivery_id
                return push
            if self._is_over:
                return None
            self._wake.clear()
            await self._wake.wait()

    def _end(self) -> None:
        """Takes no more pushes, and gives back those that the caller has not seen."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._cut_pause()
        while self._queue:
            self._put_aside(self._queue.popleft().delivery_id)
        self._step()

    def _put_aside(self, delivery_id: str) -> None:
        """The caller will not see this push."""
        hand = self._held.pop(delivery_id, None)
        if hand is None:
            return
        if hand.deadline is not None:
            hand.deadline.cancel()
        self._unseen.setdefault(hand.pull_id, []).append((delivery_id, hand.attempt))

    async def _close(self) -> None:
        """The caller has left the loop. Results that were not given by now are no longer awaited."""
        self._end()
        for hand in self._held.values():
            if hand.deadline is not None:
                hand.deadline.cancel()
            if not hand.is_late:
                # Under this name the service would also take back the push at which the caller failed. It would hand
                # out this push again at once, and the caller could fail at it for ever.
                for delivery_id, attempt in self._unseen.pop(hand.pull_id, []):
                    self._results.add(delivery_id, attempt, not_reached_result(_ENDED))
            hand.is_late = True
        self._held.clear()
        self._late = 0
        self._step()
        while not self._is_over and self._error is None:
            self._wake.clear()
            await self._wake.wait()

    def _step(self) -> None:
        """Starts requests when there is room for pushes, or when there are results to hand in."""
        if self._is_over or self._error is not None:
            return
        held = len(self._held) - self._late
        is_ending = self._ending.is_set()
        if is_ending and held == 0:
            self._limit_hand_in()
        is_out_of_time = time.monotonic() >= self._hand_in_until_s
        if self._pausing is None and not is_out_of_time:
            if self._room() > 0 and not self._is_waiting and not is_ending:
                # The first request of a connection does not wait: its response shows that the service is there.
                self._is_waiting = True
                self._ask("waits", min(self._room(), _PUSHES_MAX), _WAIT_S if self._is_connected else 0)
            if self._is_hand_in_due():
                self._is_handing_in = True
                # A push may have been on its way when the end of the iteration gave up the request that waited. Under
                # the name of that request, the service takes the push back at once. Otherwise the lane of the push
                # would stand still until the deadline of the push.
                kind: _Kind = "waits" if is_ending and "waits" in self._pull_ids else "hands in"
                unseen = self._unseen_name()
                if kind == "hands in" and kind not in self._pull_ids and unseen is not None:
                    self._pull_ids[kind] = unseen
                    del self._unseen[unseen]
                self._ask(kind, 0 if is_ending else min(self._room(), _PUSHES_MAX), None)
        is_idle = not self._is_waiting and not self._is_handing_in
        is_done = len(self._results) == 0 and not self._pull_ids and not self._unseen
        if is_ending and is_idle and held == 0 and (is_done or is_out_of_time):
            self._is_over = True
            self._wake.set()

    def _limit_hand_in(self) -> None:
        """The last result was given, so the time for handing it in begins. No pause takes up that time."""
        if self._hand_in_until_s == float("inf"):
            self._hand_in_until_s = time.monotonic() + _HAND_IN_S_MAX
            self._cut_pause()

    def _is_hand_in_due(self) -> bool:
        """Whether there is a reason for a request that hands in: there are results, or the response to the last such
        request was lost.

        At the end, the response to the request that waited may be lost too.
        """
        if self._is_handing_in:
            return False
        if not self._ending.is_set():
            return len(self._results) > 0 or "hands in" in self._pull_ids
        is_due = len(self._results) > 0 or bool(self._pull_ids) or self._unseen_name() is not None
        return not self._is_waiting and is_due

    def _unseen_name(self) -> str | None:
        """The name under which the service can take back unseen pushes now.

        Under this name it would take back every push without a result, so all results come first.
        """
        if len(self._results) > 0:
            return None
        awaited = {hand.pull_id for hand in self._held.values() if not hand.is_late}
        return next((name for name in self._unseen if name not in awaited), None)

    def _room(self) -> int:
        return max(0, self._concurrency - (len(self._held) - self._late) - self._asked)

    def _ask(self, kind: _Kind, room: int, wait_s: int | None) -> None:
        """Begins one request, with the results so far.

        :param wait_s: None for a request that hands in results, and is not given up when the iteration ends.
        """
        self._asked += room
        # When results go one by one, a request without results shows first that Convoke is there.
        is_alone = self._results.is_one_by_one
        brings = not is_alone or (wait_s is None and self._is_connected)
        results = self._results.take() if brings else []
        self._start(self._exchange(kind, results, is_alone, room, wait_s))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Without a request, the iteration would wait for ever. Only `on_connection` raises out of a task."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._give_up(error)

    async def _exchange(
        self, kind: _Kind, results: list[dict[str, Any]], is_alone: bool, room: int, wait_s: int | None
    ) -> None:
        pull_id = self._pull_ids.setdefault(kind, uuid4().hex)
        try:
            body = {"results": results, "max": room, "wait_s": wait_s or 0, "pull_id": pull_id}
            response = await self._response(body, wait_s)
            pulled = read(response, response.content.decode(errors="replace"), self._url, Pulled)
            self._pull_ids.pop(kind, None)
            self._results.arrived(results)
            results = []
            self._succeed()
            for push in pulled.pushes:
                self._take(push, pull_id, _left_s(push, response))
        except asyncio.CancelledError:
            raise
        except Exception as failure:
            error = failure
            if isinstance(failure, ConvokeError) and failure.code == "unexpected_response":
                error = self._refused(results, is_alone, failure)
            else:
                # It is unknown whether the results arrived. The service counts each of them once.
                self._results.put_back(results)
            if not self._ending.is_set():
                self._fail(error)
            elif wait_s is None:
                self._fail_at_the_end(error)
        finally:
            self._asked -= room
            if wait_s is None:
                self._is_handing_in = False
            else:
                self._is_waiting = False
        # The results of pushes that have just arrived may be ready in a moment. Then the next request hands them in.
        await asyncio.sleep(0)
        self._step()

    def _refused(self, results: list[dict[str, Any]], is_alone: bool, error: ConvokeError) -> ConvokeError:
        """Something else than Convoke responded. Returns the error to report."""
        left_out = self._results.refused(results, is_alone=is_alone, is_for_good=not error.may_pass)
        if left_out is None:
            return error
        detail = f"{error.detail}; it refuses the result of {left_out}, whose text is left out now"
        return ConvokeError(error.code, detail, status=error.status)

    async def _response(self, body: dict[str, Any], wait_s: int | None) -> httpx.Response:
        text = json_text(body)
        timeout_s = (wait_s or 0) + _GRACE_S + len(text) / _LINK_BYTES_PER_S
        over_at_s = time.time() + timeout_s

        def on_head() -> None:
            nonlocal over_at_s
            over_at_s = time.time() + _PUSHES_S_MAX

        whole_s = timeout_s + _PUSHES_S_MAX
        request = asyncio.ensure_future(self._requests.ask("POST", self._url, text, None, whole_s, on_head))
        ending = asyncio.ensure_future(self._ending.wait()) if wait_s is not None else None
        try:
            while True:
                watched = {request} if ending is None else {request, ending}
                await asyncio.wait(watched, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if request.done():
                    return request.result()
                if ending is not None and ending.done():
                    raise ConvokeError("unreachable", _ENDED)
                if time.time() > over_at_s:
                    detail = f"no response from {self._url} in time; this machine may have slept"
                    raise ConvokeError("timeout", detail)
        finally:
            for each in (request, ending):
                if each is not None:
                    each.cancel()
            await asyncio.gather(request, return_exceptions=True)

    def _take(self, handed_out: PulledPush, pull_id: str, left_s: float) -> None:
        loop = asyncio.get_running_loop()
        delivery_id, attempt = handed_out.delivery_id, handed_out.attempt
        success = self._successes.get(delivery_id)
        if success is not None:
            self._results.add(delivery_id, attempt, success[0])
            return
        running = self._held.get(delivery_id)
        if running is not None:
            if running.deadline is not None:
                running.deadline.cancel()
            if running.is_late:
                self._late -= 1
                self._in_hand_of.setdefault(running.meeting_id, delivery_id)
            running.is_late = False
            running.attempt = attempt
            running.pull_id = pull_id
            running.deadline = loop.call_later(left_s, self._expire, delivery_id)
            return
        try:
            if self._secret is not None:
                verify_signature(handed_out.body, handed_out.headers, self._secret)
            push = read_push(handed_out.body, handed_out.headers)
        except VerificationError as error:
            status_code = 400 if error.reason == "invalid_body" else 401
            self._results.add(delivery_id, attempt, response_result(status_code, str(error), None))
            return
        hand = _Hand(push.meeting_id, attempt, pull_id, loop.call_later(left_s, self._expire, delivery_id))
        self._held[delivery_id] = hand
        if self._ending.is_set():
            self._put_aside(delivery_id)
        else:
            self._queue.append(self._in_hand(push, loop, handed_out, hand, left_s))
            self._wake.set()

    def _in_hand(
        self, push: Push, loop: asyncio.AbstractEventLoop, handed_out: PulledPush, hand: _Hand, left_s: float
    ) -> PushInHand:
        return PushInHand(
            **{each.name: getattr(push, each.name) for each in fields(push)},
            delivery_id=handed_out.delivery_id,
            headers=handed_out.headers,
            deadline_at=datetime.now(timezone.utc) + timedelta(seconds=left_s),
            _give=lambda result: _in_loop(loop, lambda: self._respond(handed_out.delivery_id, hand, result)),
            _is_late=lambda: hand.is_late,
        )

    def _respond(self, delivery_id: str, hand: _Hand, result: Result) -> None:
        if hand.has_result:
            return
        hand.has_result = True
        if is_success(result):
            self._successes.set(delivery_id, result)
        if self._held.get(delivery_id) is not hand:
            return
        if hand.deadline is not None:
            hand.deadline.cancel()
        del self._held[delivery_id]
        self._release(delivery_id, hand)
        if hand.is_late:
            self._late -= 1
        else:
            self._results.add(delivery_id, hand.attempt, result)
        # Results that are given in the same turn of the event loop go together.
        asyncio.get_running_loop().call_soon(self._step)

    def _release(self, delivery_id: str, hand: _Hand) -> None:
        """The delivery has its result, or its deadline has passed: its meeting is free for the next push."""
        if self._in_hand_of.get(hand.meeting_id) == delivery_id:
            del self._in_hand_of[hand.meeting_id]
            self._wake.set()

    def _expire(self, delivery_id: str) -> None:
        """The service no longer waits for the result. If it makes a new attempt before the result is given, that
        attempt gets the result."""
        hand = self._held.get(delivery_id)
        if hand is None:
            return
        waiting = next((each for each in self._queue if each.delivery_id == delivery_id), None)
        hand.is_late = True
        if waiting is None:
            self._late += 1
            self._release(delivery_id, hand)
        else:
            self._queue.remove(waiting)
            del self._held[delivery_id]
        if self._late > _LATE_MAX:
            self._forget_oldest_late()
        self._step()

    def _forget_oldest_late(self) -> None:
        oldest = next(key for key, hand in self._held.items() if hand.is_late)
        del self._held[oldest]
        self._late -= 1

    def _succeed(self) -> None:
        # While results are refused one by one, the pauses between them grow.
        if not self._results.is_one_by_one:
            self._backoff.reset()
        self._is_lost = False
        if not self._is_connected:
            self._is_connected = True
            self._say("connected", None)

    def _fail_at_the_end(self, error: Exception) -> None:
        if len(self._results) > 0 or _is_busy(error):
            self._fail(error)
        else:
            # An iteration that ends without results does not wait for a service that is away.
            self._pull_ids.clear()
            self._unseen.clear()

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, ConvokeError) or not error.is_waited_out:
            self._give_up(error)
            return
        left_s = self._hand_in_until_s - time.monotonic()
        if left_s <= 0:
            return
        if not self._is_lost:
            self._is_lost = True
            self._say("reconnecting", error)
        self._is_connected = False
        if self._pausing is None:
            pause_s = self._backoff.pause_after_s(error)
            if left_s < float("inf"):
                # Whatever the service asks for, there is time for another try.
                pause_s = min(pause_s, _HAND_IN_S_MAX / 2, left_s)
            self._pausing = asyncio.Event()
            self._start(self._pause(pause_s, self._pausing))

    def _give_up(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self._ending.set()
        self._cut_pause()
        self._wake.set()

    async def _pause(self, pause_s: float, cut: asyncio.Event) -> None:
        """Pauses before the next request. When the iteration ends, its last results cut the pause short."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(cut.wait(), pause_s)
        self._pausing = None
        self._step()

    def _cut_pause(self) -> None:
        if self._pausing is not None:
            self._pausing.set()

    def _say(self, state: Connection, error: ConvokeError | None) -> None:
        if self._on_connection is not None:
            self._on_connection(state, error)


def _is_busy(error: Exception) -> bool:
    """Whether Convoke responded, and may take the request a little later."""
    if not isinstance(error, ConvokeError) or error.code == "unexpected_response":
        return False
    return error.status is not None and error.may_pass


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Calls a function in the loop: at once within the loop, and otherwise soon."""
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        call()
    elif not loop.is_closed():
        loop.call_soon_threadsafe(call)


def _left_s(push: PulledPush, response: httpx.Response) -> float:
    """The seconds until the deadline, by the clock of the service."""
    return max(0.0, (push.deadline_at - sent_at(response)).total_seconds())
