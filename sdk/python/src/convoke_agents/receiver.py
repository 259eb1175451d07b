"""A webhook endpoint: pushes arrive verified, and each once."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from convoke_agents.answers import Agent, reply_body
from convoke_agents.number_option import check_number
from convoke_agents.remembered import Remembered
from convoke_agents.serve import OnError, call_agent
from convoke_agents.verify import Push, VerificationError, decode_secrets, read_push, verify_with_keys

# Twice the size of the largest push under the server's default limit, its list of agents included.
_BODY_BYTES_MAX = 2 * 1024 * 1024
_LENGTH_DIGITS_MAX = 15
# With its default settings, Convoke retries a push that got a response for less than an hour. That takes longer only
# when the receiver asks for more time, or when somebody retries the push by hand.
_REMEMBER_S = 3600.0
_REMEMBERED_MAX = 10_000
_TEXT = "text/plain; charset=utf-8"

_log = logging.getLogger("convoke_agents")


@dataclass(frozen=True)
class Response:
    """The response of the endpoint."""

    status: int
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Makes a webhook endpoint out of a function: `receiver.asgi` and `receiver.wsgi` for servers and frameworks, `handle`
    and `handle_async` for a view of your own.

    A push may arrive more than once. If its webhook-id was handled, it gets the first response again, without a call of
    the function. If the first call still runs, it waits for that call, even when the request of that call was given up.
    If the first call raised, the function is called again. This memory ends with the process, and each worker process
    has its own, so an agent that must never act twice has to remember the webhook_id itself.

    Responses: 200 when the push was handled, 400 when the request is genuine but no push, 401 when it is not genuine,
    405 and 413, and 500 when the function raised.
    """

    def __init__(
        self,
        secret: str | Sequence[str],
        on_push: Agent,
        *,
        on_test: Callable[[Push], object] | None = None,
        on_error: OnError | None = None,
        body_bytes_max: int = _BODY_BYTES_MAX,
        remember_s: float = _REMEMBER_S,
        remembered_max: int = _REMEMBERED_MAX,
        tolerance_s: int = 300,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        :param secret: The instance's webhook_secret, or several of them while it is being rotated.
        :param on_push: Called once for a push, `def` or `async def`. The response is 200 when it returns. Convoke waits
            5 s for that: put the push into a queue of your own, or start the agent without waiting. While the function
            runs, Convoke holds back the next push of the same meeting. The return value of the function is sent in the
            meeting, if the instance is registered with `replies=True`: see `Answer`. Later the agent can reply with
            `push.reply_token`.
        :param on_test: Called instead of on_push for the sample push of a webhook test.
        :param on_error: Called with the exception of on_push. When absent, the logger `convoke_agents` gets the
            exception.
        :param body_bytes_max: A larger body gets the response 413.
        :param remember_s: How long a handled push is remembered.
        :param remembered_max: How many handled pushes are remembered. With more, or when their answers together take
            more than 16 MiB, the push that was not seen for the longest time is forgotten. The last one is kept.
        :raises VerificationError: with the reason `invalid_secret`, at once
        :raises ValueError: a number is NaN or too small
        """
        check_number("body_bytes_max", body_bytes_max, 1)
        check_number("remember_s", remember_s, 0)
        check_number("remembered_max", remembered_max, 0)
        check_number("tolerance_s", tolerance_s, 0)
        self._keys = decode_secrets(secret)
        self._on_push = on_push
        self._on_test = on_test
        self._on_error = _log_error if on_error is None else on_error
        self._tolerance_s = tolerance_s
        self._now = now
        self.body_bytes_max = body_bytes_max
        self._lock = threading.Lock()
        self._handled: Remembered[str | None] = Remembered(remember_s, remembered_max, lambda text: text, now)
        self._running: dict[str, Future[str | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.asgi = AsgiApp(self)
        """An ASGI application that responds at every path: mount it, or serve it alone."""
        self.wsgi = WsgiApp(self)
        """A WSGI application that responds at every path: mount it, or serve it alone."""

    def handle(self, method: str, headers: Mapping[str, str], body: bytes) -> Response:
        """The response to a request, for a framework that blocks. Give `body` as it arrived, before any JSON parser."""
        push = self._push(method, headers, body)
        if isinstance(push, Response):
            return push
        call, is_mine = self._call_of(push)
        if is_mine:
            self._run(push, call)
        return _response_of(call)

    async def handle_async(self, method: str, headers: Mapping[str, str], body: bytes) -> Response:
        """The response to a request, in asyncio. A function that blocks runs in a thread.

        When the request is cancelled, as some servers do when the sender disconnects, the function runs to its end.
        """
        push = self._push(method, headers, body)
        if isinstance(push, Response):
            return push
        call, is_mine = self._call_of(push)
        if is_mine:
            # The call continues even when this request is given up: a repetition of the push waits for it. The event
            # loop itself does not keep its tasks.
            task = asyncio.ensure_future(self._run_async(push, call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.shield(task)
        else:
            with suppress(Exception):
                # The call continues even when this request is given up.
                await asyncio.shield(asyncio.wrap_future(call))
        return _response_of(call)

    def _push(self, method: str, headers: Mapping[str, str], body: bytes) -> Push | Response:
        if method != "POST":
            return _text(405, "pushes are sent with POST", {"allow": "POST"})
        if len(body) > self.body_bytes_max:
            return self.too_large()
        try:
            verify_with_keys(body, headers, self._keys, tolerance_s=self._tolerance_s, now=self._now)
            return read_push(body, headers)
        except VerificationError as error:
            return _text(400 if error.reason == "invalid_body" else 401, str(error))

    def too_large(self) -> Response:
        return _text(413, f"a push may have at most {self.body_bytes_max} bytes here")

    def _call_of(self, push: Push) -> tuple[Future[str | None], bool]:
        """The call for a push, and whether it is still to begin."""
        with self._lock:
            running = self._running.get(push.webhook_id)
            if running is not None:
                return running, False
            call: Future[str | None] = Future()
            before = self._handled.get(push.webhook_id)
            if before is not None:
                call.set_result(before[0])
                return call, False
            self._running[push.webhook_id] = call
            return call, True

    def _run(self, push: Push, call: Future[str | None]) -> None:
        try:
            answer: object = self._function(push)(push)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
            self._settle(push, call, answer)
        except BaseException as error:
            self._fail(push, call, error)

    async def _run_async(self, push: Push, call: Future[str | None]) -> None:
        try:
            self._settle(push, call, await call_agent(self._function(push), push, None))
        except BaseException as error:
            self._fail(push, call, error)

    def _function(self, push: Push) -> Callable[[Push], Any]:
        if not push.test:
            return self._on_push
        on_test = self._on_test

        async def test(push: Push) -> None:
            if on_test is not None:
                answer = on_test(push)
                if inspect.isawaitable(answer):
                    await answer

        return test

    def _settle(self, push: Push, call: Future[str | None], answer: object) -> None:
        body = reply_body(answer)
        with self._lock:
            self._handled.set(push.webhook_id, body)
            del self._running[push.webhook_id]
        call.set_result(body)

    def _fail(self, push: Push, call: Future[str | None], error: BaseException) -> None:
        with self._lock:
            self._running.pop(push.webhook_id, None)
        if not isinstance(error, Exception):
            # The program or its event loop ends, or something else cancelled what the function awaits.
            call.set_exception(RuntimeError("the call was given up"))
            raise error
        call.set_exception(error)
        self._on_error(error, push)


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


def _response_of(call: Future[str | None]) -> Response:
    if call.exception() is not None:
        return _text(500, "the receiver failed; its log has the reason")
    body = call.result()
    if body is None:
        return _text(200, "ok")
    return Response(200, {"content-type": "application/json"}, body.encode())


def _text(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, {"content-type": _TEXT, **(headers or {})}, f"{text}\n".encode())


def _log_error(error: BaseException, push: Push) -> None:
    _log.error("the receiver failed in %s, at #%s", push.meeting_id, push.seq, exc_info=error)


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiApp:
    """A receiver as an ASGI 3 application."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()
        while True:
            piece = await receive()
            if piece["type"] != "http.request":
                # The sender has disconnected: nobody waits for a response.
                return
            body += piece.get("body", b"")
            if len(body) > self._receiver.body_bytes_max:
                response = self._receiver.too_large()
                break
            if not piece.get("more_body", False):
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
                response = await self._receiver.handle_async(scope["method"], headers, bytes(body))
                break
        headers_out = [(name.encode(), value.encode()) for name, value in response.headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": headers_out})
        await send({"type": "http.response.body", "body": response.body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


class StartResponse(Protocol):
    def __call__(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> object: ...


class WsgiApp:
    """A receiver as a WSGI application (PEP 3333)."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        response = self._respond(environ)
        headers = [*response.headers.items(), ("content-length", str(len(response.body)))]
        start_response(f"{response.status} {_REASONS[response.status]}", headers)
        return [response.body]

    def _respond(self, environ: dict[str, Any]) -> Response:
        length = cast("str", environ.get("CONTENT_LENGTH") or "")
        if length == "" and environ.get("wsgi.input_terminated"):
            # A proxy may send a body in chunks, without its length. This server says where the body ends.
            length = str(self._receiver.body_bytes_max + 1)
        elif length == "" and "HTTP_TRANSFER_ENCODING" in environ:
            return _text(
                411, "this server passes on no body without a content-length: let the proxy in between give one"
            )
        elif not (length or "0").isdecimal():
            return _text(400, "content-length is not a number")
        # Python reads no numbers of thousands of digits.
        elif len(length) > _LENGTH_DIGITS_MAX or int(length or "0") > self._receiver.body_bytes_max:
            return self._receiver.too_large()
        body: bytes = environ["wsgi.input"].read(int(length or "0"))
        headers = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
        return self._receiver.handle(environ["REQUEST_METHOD"], headers, body)


_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    500: "Internal Server Error",
}
