"""The receiver in the frameworks that people use, on real servers, with pushes of the real service."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
import flask
import httpx
import pytest
import uvicorn
from conftest import DEADLINE_S, said, until
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from fastapi import FastAPI
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from convoke_agents import Answer, ConvokeClient, Push, Receiver, VerificationError

SECRET = "whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o="


@contextmanager
def asgi_server(app: Any) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, ws="none", log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until("uvicorn listens", lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(DEADLINE_S)


class ThreadingServer(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def wsgi_server(app: Any) -> Iterator[str]:
    with make_server("127.0.0.1", 0, app, server_class=ThreadingServer, handler_class=Silent) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def alone_asgi(receiver: Receiver) -> AbstractContextManager[str]:
    return asgi_server(receiver.asgi)


def alone_wsgi(receiver: Receiver) -> AbstractContextManager[str]:
    return wsgi_server(receiver.wsgi)


def in_fastapi(receiver: Receiver) -> AbstractContextManager[str]:
    app = FastAPI()
    app.add_route("/convoke", receiver.asgi, methods=["POST"])  # type: ignore[arg-type]
    return asgi_server(app)


def mounted_in_fastapi(receiver: Receiver) -> AbstractContextManager[str]:
    app = FastAPI()
    app.mount("/", receiver.asgi)
    return asgi_server(app)


def in_flask(receiver: Receiver) -> AbstractContextManager[str]:
    app = flask.Flask("agent")
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/convoke": receiver.wsgi})  # type: ignore[method-assign]
    return wsgi_server(app)


def django_urls(receiver: Receiver) -> None:
    @csrf_exempt  # type: ignore[untyped-decorator]
    def convoke(request: HttpRequest) -> HttpResponse:
        response = receiver.handle(request.method or "", request.headers, request.body)
        return HttpResponse(response.body, status=response.status, headers=response.headers)

    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="x", ROOT_URLCONF="django_urlconf", LOGGING_CONFIG=None
        )
        django.setup()
    import django_urlconf

    django_urlconf.urlpatterns[:] = [path("convoke", convoke)]
    django.urls.clear_url_caches()


def in_django(receiver: Receiver) -> AbstractContextManager[str]:
    django_urls(receiver)
    return wsgi_server(get_wsgi_application())


def in_async_django(receiver: Receiver) -> AbstractContextManager[str]:
    django_urls(receiver)
    return asgi_server(get_asgi_application())


SERVERS: list[Callable[[Receiver], AbstractContextManager[str]]] = [
    alone_asgi,
    alone_wsgi,
    in_fastapi,
    mounted_in_fastapi,
    in_flask,
    in_django,
    in_async_django,
]


def signed(webhook_id: str, body: bytes) -> dict[str, str]:
    timestamp = str(int(time.time()))
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signature = hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def push_body(meeting_id: str = "m") -> bytes:
    fields = {"meeting_id": meeting_id, "message": {}, "target_agents": ["a"], "timestamp": ""}
    return json.dumps({"event": "new_message", **fields}).encode()


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async-def"])
@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.__name__)
def test_a_genuine_push_reaches_the_agent_once_and_its_answer_the_meeting(
    client: ConvokeClient, server: Callable[[Receiver], AbstractContextManager[str]], is_async: bool
) -> None:
    name = f"{server.__name__}-{is_async}"
    seen: list[Push] = []

    def answer(push: Push) -> Answer:
        seen.append(push)
        return f"You said: {push.message['content']}" if push.from_agent is None and push.message else None

    async def answer_async(push: Push) -> Answer:
        return answer(push)

    with server(Receiver(SECRET, answer_async if is_async else answer)) as url:
        client.register(
            instance_id=name,
            instance_name=name,
            agent_ids=["anna"],
            webhook_url=f"{url}/convoke",
            webhook_secret=SECRET,
            replies=True,
        )
        client.join_meeting(instance_id=name, meeting_id=name, agent_ids=["anna"])
        client.send_message(name, {"content": "Grüß Gott"})
        assert said(client, name, 2) == ["Grüß Gott", "You said: Grüß Gott"]
        assert (seen[0].meeting_id, seen[0].seq, seen[0].target_agents) == (name, 1, ["anna"])
        diagnosis = client.test_webhook(instance_id=name)
        assert (diagnosis.success, diagnosis.status_code) == (True, 200)

        body = push_body()
        genuine = signed("dlv_again", body)
        with httpx.Client(trust_env=False) as http:

            def post(headers: dict[str, str], content: bytes = body) -> int:
                return http.post(f"{url}/convoke", content=content, headers=headers).status_code

            assert [post(genuine), post(genuine)] == [200, 200]
            assert post({**genuine, "webhook-id": "dlv_other"}) == 401
            assert post({}) == 401
            assert post(signed("dlv_x", b"{}"), b"{}") == 400
            assert post(genuine, b" " * (2 * 1024 * 1024 + 1)) == 413
            assert http.get(f"{url}/convoke").status_code == 405
    assert [push.webhook_id for push in seen].count("dlv_again") == 1
    assert not any(push.test for push in seen)


def test_the_answer_to_a_repetition_is_that_of_the_first_time() -> None:
    answers = ["once", "twice"]
    receiver = Receiver(SECRET, lambda _: answers.pop(0))
    body = push_body()
    responses = [receiver.handle("POST", signed("dlv_1", body), body) for _ in range(2)]
    assert [(response.status, json.loads(response.body)) for response in responses] == [(200, {"reply": "once"})] * 2


class Held:
    """An agent whose call runs until the test lets it end."""

    def __init__(self, end: Callable[[], str] = lambda: "done") -> None:
        self.end = end
        self.is_running, self.may_end = threading.Event(), threading.Event()
        self.calls: list[str] = []

    def answer(self, push: Push) -> str:
        self.calls.append(push.webhook_id)
        self.is_running.set()
        assert self.may_end.wait(DEADLINE_S)
        return self.end()

    async def answer_async(self, push: Push) -> str:
        return await asyncio.to_thread(self.answer, push)


def test_a_push_whose_call_runs_waits_for_it() -> None:
    held = Held()
    receiver = Receiver(SECRET, held.answer)
    body = push_body()
    responses: list[int] = []

    def first() -> None:
        responses.append(receiver.handle("POST", signed("dlv_1", body), body).status)

    async def second() -> int:
        asyncio.get_running_loop().call_soon(held.may_end.set)
        return (await receiver.handle_async("POST", signed("dlv_1", body), body)).status

    thread = threading.Thread(target=first)
    thread.start()
    assert held.is_running.wait(DEADLINE_S)
    responses.append(asyncio.run(second()))
    thread.join()
    assert (responses, held.calls) == ([200, 200], ["dlv_1"])


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async-def"])
def test_a_call_whose_request_was_cancelled_goes_on_and_the_repetition_waits_for_it(is_async: bool) -> None:
    held = Held()
    receiver = Receiver(SECRET, held.answer_async if is_async else held.answer)
    body = push_body()

    async def twice() -> bytes:
        first = asyncio.ensure_future(receiver.handle_async("POST", signed("dlv_1", body), body))
        assert await asyncio.to_thread(held.is_running.wait, DEADLINE_S)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        asyncio.get_running_loop().call_soon(held.may_end.set)
        return (await receiver.handle_async("POST", signed("dlv_1", body), body)).body

    assert json.loads(asyncio.run(twice())) == {"reply": "done"}
    assert held.calls == ["dlv_1"]


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async-def"])
def test_what_a_call_raises_after_its_request_was_cancelled_is_reported(is_async: bool) -> None:
    held = Held(end=lambda: str(1 // 0))

    async def cancelled() -> BaseException:
        reported: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        receiver = Receiver(
            SECRET, held.answer_async if is_async else held.answer, on_error=lambda error, _: reported.set_result(error)
        )
        request = asyncio.ensure_future(receiver.handle_async("POST", signed("dlv_1", push_body()), push_body()))
        assert await asyncio.to_thread(held.is_running.wait, DEADLINE_S)
        request.cancel()
        held.may_end.set()
        return await asyncio.wait_for(reported, DEADLINE_S)

    assert isinstance(asyncio.run(cancelled()), ZeroDivisionError)


def test_a_push_whose_call_raised_is_handled_again() -> None:
    errors: list[str] = []
    answers: list[Callable[[], str]] = [lambda: str(1 // 0), lambda: "better"]
    receiver = Receiver(SECRET, lambda _: answers.pop(0)(), on_error=lambda error, _: errors.append(str(error)))
    body = push_body()
    assert [receiver.handle("POST", signed("dlv_1", body), body).status for _ in range(2)] == [500, 200]
    assert len(errors) == 1


def test_a_webhook_test_wakes_nobody_but_who_asks_for_it() -> None:
    tests: list[str] = []
    receiver = Receiver(SECRET, lambda _: str(1 // 0), on_test=lambda push: tests.append(push.webhook_id))
    body = push_body()
    assert receiver.handle("POST", signed("dlv_test-1", body), body).status == 200
    assert tests == ["dlv_test-1"]


def test_both_secrets_of_a_rotation_are_good() -> None:
    other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = push_body()
    assert Receiver([other, SECRET], lambda _: None).handle("POST", signed("dlv_1", body), body).status == 200
    assert Receiver(other, lambda _: None).handle("POST", signed("dlv_1", body), body).status == 401


def test_a_secret_that_cannot_be_one_is_refused_at_once() -> None:
    with pytest.raises(VerificationError, match="invalid_secret"):
        Receiver("whsec_", lambda _: None)


def test_what_was_handled_is_forgotten_after_its_time_and_beyond_the_number() -> None:
    now_s = time.time()
    calls: list[str] = []
    receiver = Receiver(
        SECRET, lambda push: calls.append(push.webhook_id), remember_s=60, remembered_max=2, now=lambda: now_s
    )
    body = push_body()

    def push(webhook_id: str) -> None:
        assert receiver.handle("POST", signed(webhook_id, body), body).status == 200

    for webhook_id in ("one", "two", "one", "three", "one", "two"):
        push(webhook_id)
    assert calls == ["one", "two", "three", "two"]
    now_s += 61
    push("one")
    assert calls[-1] == "one"


def test_what_was_handled_is_forgotten_when_the_answers_since_took_more_than_16_mib() -> None:
    calls: list[str] = []

    def answer(push: Push) -> str:
        calls.append(push.webhook_id)
        # The first character makes each character take four bytes, so 69 of these answers fit into 16 MiB.
        return "😀" + "a" * 60_000

    receiver = Receiver(SECRET, answer)
    body = push_body()
    for number in [*range(70), 1, 69, 0]:
        assert receiver.handle("POST", signed(f"dlv_{number}", body), body).status == 200
    assert calls == [*(f"dlv_{number}" for number in range(70)), "dlv_0"]


@pytest.mark.parametrize("limits", [{"remembered_max": 0}, {"remember_s": 0}], ids=["none", "for-no-time"])
def test_a_receiver_that_should_remember_nothing_still_responds(limits: dict[str, int]) -> None:
    receiver = Receiver(SECRET, lambda _: "done", **limits)  # type: ignore[arg-type]
    body = push_body()
    assert [receiver.handle("POST", signed(webhook_id, body), body).status for webhook_id in ("one", "two")] == [
        200,
        200,
    ]


@pytest.mark.parametrize(
    ("server", "status"),
    [({"wsgi.input_terminated": True}, "200 OK"), ({}, "411 Length Required")],
    ids=["passed-on", "not-passed-on"],
)
def test_a_genuine_push_in_chunks_is_taken_or_the_response_says_what_is_missing(
    server: dict[str, Any], status: str
) -> None:
    body = push_body()
    headers = signed("d1", body)
    environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    environ |= {"REQUEST_METHOD": "POST", "HTTP_TRANSFER_ENCODING": "chunked"}
    given: list[str] = []
    receiver = Receiver(SECRET, lambda _: None)
    receiver.wsgi({**environ, "wsgi.input": io.BytesIO(body), **server}, lambda status, *_: given.append(status))
    assert given == [status]


def test_a_length_of_thousands_of_digits_is_too_large() -> None:
    environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": "9" * 5000, "wsgi.input": io.BytesIO()}
    given: list[str] = []
    Receiver(SECRET, lambda _: None).wsgi(environ, lambda status, *_: given.append(status))
    assert given == ["413 Content Too Large"]
