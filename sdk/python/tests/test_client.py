"""The clients against the real service."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from conftest import DEADLINE_S, Service

from convoke_agents import AsyncConvokeClient, ConvokeClient, ConvokeError, RawJson, VerificationError, models
from convoke_agents.errors import error_from_response
from convoke_agents.json_value import parse_json
from convoke_agents.requests import RETRY_WAIT_S_MAX, Target
from convoke_agents.sending import retry_wait_s

ODD = "a/b ?#%é…"


def join(client: ConvokeClient, instance_id: str, meeting_id: str) -> None:
    client.register(instance_id=instance_id, instance_name="A machine", agent_ids=["anna"], transport="pull")
    client.join_meeting(instance_id=instance_id, meeting_id=meeting_id, agent_ids=["anna"])


def test_from_the_registration_to_the_message(client: ConvokeClient) -> None:
    registered = client.register(instance_id=ODD, instance_name="Odd", agent_ids=["anna"], transport="pull")
    assert registered.webhook_secret is not None
    assert registered.webhook_secret not in repr(registered)
    assert client.join_meeting(instance_id=ODD, meeting_id=ODD, agent_ids=["anna"]).left_at is None
    sent = client.send_message(ODD, {"content": "Grüß Gott"}, from_agent="ben", expires_in_s=60)
    assert (sent.seq, sent.deliveries_queued) == (1, 1)
    assert datetime.now(timezone.utc) - sent.accepted_at < timedelta(minutes=5)
    (message,) = client.list_messages(ODD).data
    assert (message.message["content"], message.from_agent) == ("Grüß Gott", "ben")
    (delivery,) = client.all_deliveries(meeting_id=ODD)
    assert (delivery.state, delivery.waiting_for) == ("pending", "connection")
    assert client.drop_deliveries(meeting_id=ODD).done
    client.delete_instance(ODD)
    with pytest.raises(
        ConvokeError, match=r"^instance_does_not_exist \(404\): No such instance is registered. No instance"
    ):
        client.get_instance(ODD)


def test_a_number_may_be_the_id_of_a_meeting(client: ConvokeClient) -> None:
    assert client.send_message(42, {}).meeting_id == "42"


def test_what_is_sent_is_what_is_stored(client: ConvokeClient) -> None:
    message = {"big": 12345678901234567890, "lone": "\ud800", "text": "\u2028 é", "none": None, "float": 1.5}
    client.send_message("as-it-is", message)
    raw = RawJson('{"lone \\ud800": 1e400, "many": ' + "1" * 5000 + "}")
    client.send_message("as-it-is", raw)
    first, second = client.all_messages("as-it-is", limit=1)
    assert first.message == message
    assert second.message == {"lone \ud800": float("inf"), "many": float("inf")}
    with pytest.raises(ValueError, match="JSON"):
        client.send_message("as-it-is", {"nan": float("nan")})
    with pytest.raises(TypeError, match="mapping"):
        client.send_message("as-it-is", "text")  # type: ignore[arg-type]


def test_all_walks_through_the_pages(client: ConvokeClient) -> None:
    for number in range(5):
        join(client, f"page-{number}", "pages")
    assert [each.instance_id for each in client.all_instances(meeting_id="pages", limit=2)] == [
        f"page-{number}" for number in range(5)
    ]
    assert len(list(client.all_meeting_instances("pages", limit=3))) == 5


def test_a_list_in_a_query_is_that_list(client: ConvokeClient) -> None:
    client.register(instance_id="listed", instance_name="x", agent_ids=["anna", "ben", "cleo"], transport="pull")
    client.join_meeting(instance_id="listed", meeting_id="listed", agent_ids=["anna", "ben", "cleo"])
    cases: list[tuple[Sequence[str], list[str]]] = [
        (["anna"], ["anna"]),
        (("anna", "ben"), ["anna", "ben"]),
        ([], ["anna", "ben", "cleo"]),
    ]
    for target_agents, expected in cases:
        assert [each.target_agents for each in client.explain("listed", target_agents=target_agents).data] == [expected]


def test_an_error_has_the_code_and_names_the_field(client: ConvokeClient) -> None:
    with pytest.raises(ConvokeError) as caught:
        client.register(instance_id="", instance_name="x", agent_ids=["a"], transport="pull")
    error = caught.value
    assert (error.code, error.status) == ("invalid_fields", 422)
    assert [each.path for each in error.errors] == ["instance_id"]
    assert error.title == "Some fields are not valid"
    assert str(error).startswith("invalid_fields (422): Some fields are not valid. ")
    assert "instance_id must be a string of 1 to 200 characters" in str(error)
    assert not error.may_pass


@pytest.mark.parametrize("meeting_id", ["", ".", ".."])
def test_an_id_that_would_lead_elsewhere_is_refused(client: ConvokeClient, meeting_id: str) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        client.get_meeting(meeting_id)


def test_a_url_that_cannot_be_sent_is_refused_in_words(client: ConvokeClient) -> None:
    with pytest.raises(ValueError, match="give shorter ids or filters"):
        client.explain("many", target_agents=["a" * 200] * 400)
    with pytest.raises(ConvokeError, match="431"):
        client.explain("many", target_agents=["a" * 200] * 200)


def test_none_and_left_out_are_two_things_where_null_means_something(client: ConvokeClient) -> None:
    client.send_message("limits", {})
    assert client.update_meeting("limits", hop_limit=3).hop_limit == 3
    assert client.update_meeting("limits", paused=True).hop_limit == 3
    assert client.update_meeting("limits", hop_limit=None).hop_limit is None


def test_a_time_without_zone_is_refused_before_it_is_sent(client: ConvokeClient) -> None:
    since = datetime.now(timezone.utc) - timedelta(minutes=1)
    assert list(client.all_audit(since=since, limit=1))
    with pytest.raises(ValueError, match="time zone"):
        client.list_audit(since=since.replace(tzinfo=None))


def test_keys_and_invites(own_service: Service) -> None:
    with ConvokeClient(own_service.url) as open_client:
        key = open_client.create_key(scopes=["admin"])
        with pytest.raises(ConvokeError) as caught:
            open_client.list_keys()
        assert caught.value.status == 401
    with ConvokeClient(own_service.url, api_key=key.token) as admin:
        invite = admin.create_invite(meeting_ids=["standup"], agent_ids=["anna"])
        assert invite.link.startswith(f"{own_service.url}/invite/")
        with ConvokeClient(own_service.url) as invited:
            redeemed = invited.redeem_invite(invite.link)
            with pytest.raises(ConvokeError, match="invite_ended"):
                invited.redeem_invite(invite.link)
            with pytest.raises(ValueError, match="begins with"):
                invited.redeem_invite("http://example.com/invite/x")
        assert redeemed.api_key is not None
        assert redeemed.api_key not in repr(redeemed)
        assert admin.list_invites().data[0].state == "redeemed"


def test_the_metrics_come_as_the_text_that_they_are(client: ConvokeClient) -> None:
    assert "\nconvoke_deliveries_pending " in client.metrics()


def test_a_backup_is_read_in_pieces(client: ConvokeClient) -> None:
    backup = client.begin_backup()
    while True:
        copy = client.fetch_backup(backup.backup_id)
        if not isinstance(copy, models.BackupProgress):
            break
    assert b"".join(copy).startswith(b"SQLite format 3\0")


@pytest.mark.anyio
async def test_the_async_client_does_the_same(service: Service) -> None:
    async with AsyncConvokeClient(service.url) as client:
        await client.register(instance_id="async", instance_name="x", agent_ids=["anna"], transport="pull")
        await client.join_meeting(instance_id="async", meeting_id="async", agent_ids=["anna"])
        for number in range(3):
            await client.send_message("async", {"number": number})
        assert [each.message["number"] async for each in client.all_messages("async", limit=2)] == [0, 1, 2]
        assert [each.seq async for each in client.all_deliveries(meeting_id="async", limit=2)] == [3, 2, 1]
        backup = await client.begin_backup()
        while True:
            copy = await client.fetch_backup(backup.backup_id)
            if not isinstance(copy, models.BackupProgress):
                break
        assert b"".join([piece async for piece in copy]).startswith(b"SQLite format 3\0")
        with pytest.raises(ConvokeError, match="meeting_does_not_exist"):
            await client.get_meeting("nowhere")


def test_the_address_of_the_service_is_checked() -> None:
    for url in ("127.0.0.1:8080", "ftp://127.0.0.1", "http://127.0.0.1:no", "http://[", ""):
        with pytest.raises(ValueError, match="http or https URL"):
            ConvokeClient(url)
    with pytest.raises(ValueError, match="api_key"):
        ConvokeClient("http://user:password@127.0.0.1")
    for url, base_url in (
        ("http://127.0.0.1:8080/convoke/", "http://127.0.0.1:8080/convoke"),
        ("HTTPS://Annas-MacBook.local:443/Convoke", "https://annas-macbook.local/Convoke"),
        ("http://[::1]:80", "http://[::1]"),
    ):
        assert ConvokeClient(url).base_url == base_url


REDEEMED = (
    200,
    {"content-type": "application/json"},
    '{"invite_id":"inv_1","instance_id":"anna","meeting_ids":["m"],"agent_ids":["anna"],"api_key":"cvk_x"}',
)


def test_the_link_of_an_invite_may_be_written_in_another_way_than_the_address_of_the_service() -> None:
    with scripted(REDEEMED, REDEEMED) as (url, asked):
        port = url.rsplit(":", 1)[1]
        with ConvokeClient(f"http://LocalHost:{port}") as client:
            client.redeem_invite(f"http://LOCALHOST:{port}/invite/The-Secret")
            client.redeem_invite(f"HTTP://localhost:{port}/invite/The-Secret/")
            for link in (
                "http://localhost:1/invite/x",
                "http://localhost:no/invite/x",
                f"https://localhost:{port}/invite/x",
                "x",
            ):
                with pytest.raises(ValueError, match="a link of an invite begins with"):
                    client.redeem_invite(link)
    assert [body for _, body in asked] == [{"secret": "The-Secret"}] * 2
    assert Target.of("https://h", None, 1).secret_of("https://h:443/invite/x") == "x"


class Scripted(BaseHTTPRequestHandler):
    """Gives the responses of a script, one after the other, and keeps the requests. Closes the connection at a None."""

    script: list[tuple[int, dict[str, str], str] | None]
    asked: list[tuple[dict[str, str], Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        asked = json.loads(body) if body else None
        self.asked.append(({name.lower(): value for name, value in self.headers.items()}, asked))
        response = self.script.pop(0)
        if response is None:
            self.close_connection = True
            return
        status, headers, text = response
        self.send_response(status)
        for name, value in {"content-length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


STORED = (
    201,
    {"content-type": "application/json"},
    '{"message_id":"m","meeting_id":"a","seq":1,"accepted_at":"2026-03-01T09:30:00.000Z","deliveries_queued":0}',
)


@contextmanager
def scripted(*script: tuple[int, dict[str, str], str] | None) -> Iterator[tuple[str, list[tuple[dict[str, str], Any]]]]:
    handler = type("Handler", (Scripted,), {"script": list(script), "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", handler.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


def problem(status: int, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], str]:
    text = json.dumps({"type": "t", "title": "t", "status": status, "detail": "Later.", "code": "overloaded"})
    return status, headers or {}, text


def test_a_send_repeats_under_one_idempotency_key_until_it_is_stored() -> None:
    with scripted(problem(503, {"retry-after": "0"}), None, STORED) as (url, asked), ConvokeClient(url) as client:
        client.send_message("a", {"content": "x"})
    (key,) = {headers["idempotency-key"] for headers, _ in asked}
    assert len(key) == 32
    assert [body for _, body in asked] == [{"message": {"content": "x"}}] * 3


@pytest.mark.anyio
async def test_an_async_send_repeats_as_well() -> None:
    with scripted(problem(429, {"retry-after": "0"}), STORED) as (url, asked):
        async with AsyncConvokeClient(url) as client:
            await client.send_message("a", {"content": "x"}, idempotency_key="mine")
    assert [headers["idempotency-key"] for headers, _ in asked] == ["mine", "mine"]


class Kept(BaseHTTPRequestHandler):
    """Keeps connections open, and knows from which of them each request came."""

    protocol_version = "HTTP/1.1"
    ports: list[int]

    def do_GET(self) -> None:
        self.ports.append(self.client_address[1])
        text = b'{"data": [], "next_cursor": null}'
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


FORK = """
import os, sys
from convoke_agents import ConvokeClient

client = ConvokeClient(sys.argv[1])
client.list_invites()
child = os.fork()
client.list_invites()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_has_connections_of_its_own() -> None:
    handler = type("Handler", (Kept,), {"ports": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        subprocess.run([sys.executable, "-c", FORK, url], check=True, timeout=DEADLINE_S)
        server.shutdown()
    ports = handler.ports  # type: ignore[attr-defined]
    assert len(ports) == 3
    assert len(set(ports)) == 2


def test_a_key_that_was_read_from_a_file_may_end_with_a_line_break() -> None:
    empty: tuple[int, dict[str, str], str] = (200, {}, '{"data":[],"next_cursor":null}')
    with scripted(empty, empty) as (url, asked):
        for key in ("cvk_key\n", "\n"):
            with ConvokeClient(url, api_key=key) as client:
                client.list_invites()
    assert [headers.get("authorization") for headers, _ in asked] == ["Bearer cvk_key", None]


def test_what_no_header_can_have_is_refused_by_name_and_is_not_in_the_error() -> None:
    with pytest.raises(ValueError, match="api_key must be printable ASCII") as caught:
        ConvokeClient("http://127.0.0.1:1", api_key="cvk_\nkey")
    assert "cvk_" not in str(caught.value)
    with ConvokeClient("http://127.0.0.1:1") as client:
        for odd in ("a\n", " a", "é"):
            with pytest.raises(ValueError, match="idempotency-key must be printable ASCII"):
                client.send_message("m", {}, idempotency_key=odd)
            with pytest.raises(ValueError, match="convoke-reply-token must be printable ASCII"):
                client.send_reply(odd, "x")
            with pytest.raises(ValueError, match="last-event-id must be printable ASCII"):
                next(client.stream_events(last_event_id=odd))


def test_an_error_comes_whole_out_of_another_process() -> None:
    field = models.FieldError(path="agent_id", message="is missing")
    error = ConvokeError("invalid_fields", "Look.", title="No", status=422, errors=[field], retry_after_s=3)
    error.idempotency_key = "key"
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), vars(copied)) == (str(error), vars(error))
    assert str(error) == "invalid_fields (422): No. Look.; agent_id is missing"
    not_genuine = pickle.loads(pickle.dumps(VerificationError("missing_header", "there is none")))
    assert (str(not_genuine), not_genuine.reason) == ("missing_header: there is none", "missing_header")


def test_a_time_to_try_again_is_read_on_the_clock_of_the_server() -> None:
    headers = {"date": "Fri, 27 Nov 2015 13:00:00 GMT", "retry-after": "Fri, 27 Nov 2015 13:00:20 GMT"}
    error = error_from_response(httpx.Response(503, headers=headers), "busy", "http://127.0.0.1")
    assert error.retry_after_s == 20


def test_a_time_that_is_none_counts_as_absent() -> None:
    never = "Fri, 27 Nov 99999999999999999999 13:00:00 GMT"
    with scripted(problem(503, {"retry-after": never})) as (url, _), ConvokeClient(url) as client:
        with pytest.raises(ConvokeError, match="overloaded") as caught:
            client.list_invites()
        assert caught.value.retry_after_s is None


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_only_python_reads_is_no_json(number: str) -> None:
    with pytest.raises(ValueError, match=f"^{number} is not JSON$"):
        RawJson(f'{{"content": {number}}}')


def test_a_send_gives_up_with_the_key_in_the_error() -> None:
    busy = [problem(503, {"retry-after": "0"})] * 4
    with scripted(*busy) as (url, asked), ConvokeClient(url) as client, pytest.raises(ConvokeError) as caught:
        client.send_message("a", {})
    assert caught.value.idempotency_key == asked[0][0]["idempotency-key"]
    assert len(asked) == 4


@pytest.mark.parametrize("response", [problem(422), problem(500), problem(503, {"retry-after": "31"})])
def test_what_a_repetition_cannot_help_is_not_repeated(response: tuple[int, dict[str, str], str]) -> None:
    with scripted(response) as (url, asked), ConvokeClient(url) as client, pytest.raises(ConvokeError):
        client.send_message("a", {})
    assert len(asked) == 1


LEFT = (200, {"content-type": "application/json"}, '{"instance_id":"i","meeting_id":"m","left_at":null}')


def test_every_call_is_repeated_while_the_service_is_overloaded() -> None:
    busy = problem(503, {"retry-after": "0"})
    with scripted(busy, busy, LEFT) as (url, asked), ConvokeClient(url) as client:
        assert client.leave_meeting(instance_id="i", meeting_id="m").left_at is None
    assert len(asked) == 3
    with scripted(busy) as (url, asked), ConvokeClient(url, send_attempts_max=1) as client, pytest.raises(ConvokeError):
        client.leave_meeting(instance_id="i", meeting_id="m")
    assert len(asked) == 1


@pytest.mark.anyio
async def test_every_async_call_is_repeated_while_the_service_is_overloaded() -> None:
    with scripted(problem(503, {"retry-after": "0"}), LEFT) as (url, asked):
        async with AsyncConvokeClient(url) as client:
            await client.leave_meeting(instance_id="i", meeting_id="m")
    assert len(asked) == 2


def test_what_is_not_convoke_is_named() -> None:
    page = (200, {"content-type": "text/html"}, "<html>")
    moved = (308, {"location": "https://example.com/"}, "")
    with scripted(page, moved) as (url, _), ConvokeClient(url, send_attempts_max=1) as client:
        with pytest.raises(ConvokeError, match=r"responded 200 with text/html, which is no response of Convoke"):
            client.send_message("a", {})
        with pytest.raises(ConvokeError, match=r"redirects to https://example.com/"):
            client.send_message("a", {})


def test_a_success_of_something_that_is_not_convoke_is_none() -> None:
    calls: dict[str, Callable[[ConvokeClient], object]] = {
        "send": lambda client: client.send_message("a", {}),
        "list": lambda client: client.list_instances(),
        "delete": lambda client: client.delete_instance("i"),
        "backup": lambda client: client.fetch_backup("b"),
        "metrics": lambda client: client.metrics(),
    }
    others = "send list backup metrics"
    page = (200, {"content-type": "text/html"}, "<html>")
    health = (200, {"content-type": "application/json"}, '{"status": "ok"}')
    nothing: tuple[int, dict[str, str], str] = (204, {}, "")
    for answer, names in ((page, f"{others} delete"), (health, f"{others} delete"), (nothing, others)):
        for name in names.split():
            with scripted(answer) as (url, _), ConvokeClient(url, send_attempts_max=1) as client:
                with pytest.raises(ConvokeError) as caught:
                    calls[name](client)
                assert (caught.value.code, caught.value.status) == ("unexpected_response", answer[0]), (answer, name)


@pytest.mark.anyio
async def test_a_page_of_something_else_is_no_backup_for_the_async_client_either() -> None:
    with scripted((200, {"content-type": "text/html"}, "<html>")) as (url, _):
        async with AsyncConvokeClient(url) as client:
            with pytest.raises(ConvokeError, match=r"^unexpected_response \(200\)"):
                await client.fetch_backup("b")


def feed_with(seq: int) -> tuple[int, dict[str, str], str]:
    text = f"event: message.accepted\nid: {seq}\ndata: {json.dumps({'seq': seq})}\n\n"
    return 200, {"content-type": "text/event-stream"}, text


def test_the_live_feed_goes_on_after_a_network_responded_in_place_of_convoke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convoke_agents.events._WAIT_FIRST_S", 0.0)
    sign_in = (200, {"content-type": "text/html"}, "<h1>Sign in</h1>")
    elsewhere = (404, {"content-type": "text/html"}, "not here")
    with scripted(feed_with(1), sign_in, elsewhere, feed_with(2)) as (url, _), ConvokeClient(url) as client:
        events = client.stream_events()
        assert [next(events).data["seq"] for _ in range(2)] == [1, 2]
    for page in (sign_in, elsewhere):
        with (
            scripted(page) as (url, _),
            ConvokeClient(url) as client,
            pytest.raises(ConvokeError, match="unexpected_response"),
        ):
            next(client.stream_events())


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ('event: end\ndata: {"code": "shutting_down"}\n\n', "shutting_down"),
        ("event: end\ndata: {}\n\n", None),
        ("event: message.accepted\nid: 1\ndata: <h1>\n\n", "unexpected_response"),
    ],
    ids=["the-service-ends-it", "it-does-not-say-why", "no-json"],
)
def test_the_live_feed_says_why_a_connection_ended_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, event: str, code: str | None
) -> None:
    monkeypatch.setattr("convoke_agents.events._WAIT_FIRST_S", 0.0)
    ended = (200, {"content-type": "text/event-stream"}, event)
    said: list[str | None] = []

    def say(state: str, error: ConvokeError | None) -> None:
        if state == "reconnecting":
            said.append(None if error is None else error.code)

    with scripted(ended, feed_with(2)) as (url, _), ConvokeClient(url) as client:
        assert next(client.stream_events(on_connection=say)).data["seq"] == 2
    assert said == [code]


def test_json_that_is_nested_too_deeply_is_a_value_error_also_behind_a_long_number() -> None:
    deep = "[" * 200_000
    for text in (deep, f"[{'1' * 5000}, {deep}"):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(text)


@pytest.mark.parametrize(("lasted_s", "expected"), [(60.0, [1.0, 2.0, 4.0]), (0.0, [1.0, 1.0, 1.0])])
def test_the_live_feed_pauses_for_longer_while_each_connection_is_cut_at_once(
    monkeypatch: pytest.MonkeyPatch, lasted_s: float, expected: list[float]
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(pause_s: float) -> None:
        pauses.append(pause_s)
        await sleep(0)

    monkeypatch.setattr("convoke_agents.events.asyncio.sleep", noted)
    monkeypatch.setattr("convoke_agents.events.random.uniform", lambda _low, high: high)
    monkeypatch.setattr("convoke_agents.events._WAIT_FIRST_S", 1.0)
    # With 0, every connection has lasted.
    monkeypatch.setattr("convoke_agents.events._LASTED_S", lasted_s)
    with scripted(*(feed_with(seq) for seq in (1, 2, 3, 4))) as (url, _), ConvokeClient(url) as client:
        events = client.stream_events()
        assert [next(events).data["seq"] for _ in range(4)] == [1, 2, 3, 4]
    assert pauses == expected


def test_why_the_service_was_not_reached_is_said() -> None:
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with ConvokeClient(url) as client, pytest.raises(ConvokeError, match="nothing listens there") as caught:
            client.healthz()
    assert (caught.value.code, caught.value.status, caught.value.may_pass) == ("unreachable", None, True)


@pytest.mark.anyio
async def test_a_response_that_does_not_come_ends_in_time() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with ConvokeClient(url, timeout_s=0.2) as client, pytest.raises(ConvokeError, match="timeout: no whole"):
            client.healthz()
        async with AsyncConvokeClient(url, timeout_s=0.2) as client:
            with pytest.raises(ConvokeError, match="timeout: no whole"):
                await client.healthz()


DIAGNOSIS = {
    "success": True,
    "status_code": 200,
    "outcome": "ok",
    "duration_ms": 12.5,
    "stages": [],
    "response_excerpt": "",
    "advice": "Nothing to do.",
}


class Diagnosing(BaseHTTPRequestHandler):
    """Responds to each request as soon as the test permits it."""

    asked: threading.Event
    may_respond: threading.Event

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.asked.set()
        self.may_respond.wait(DEADLINE_S)
        text = json.dumps(DIAGNOSIS).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self.may_respond.wait(DEADLINE_S)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def diagnosing() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    asked, may_respond = threading.Event(), threading.Event()
    handler = type("Handler", (Diagnosing,), {"asked": asked, "may_respond": may_respond})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked, may_respond
    finally:
        may_respond.set()
        server.shutdown()
        server.server_close()


def test_a_webhook_test_may_take_longer_than_other_calls() -> None:
    with (
        diagnosing() as (url, asked, may_respond),
        ConvokeClient(url, timeout_s=0.2) as client,
        ThreadPoolExecutor() as pool,
    ):
        diagnosis = pool.submit(client.test_webhook, instance_id="slow")
        assert asked.wait(DEADLINE_S)
        # This call begins later. When its time is over, the time of the earlier one would be over too.
        with pytest.raises(ConvokeError, match="timeout"):
            client.healthz()
        may_respond.set()
        assert diagnosis.result(DEADLINE_S).success


@pytest.mark.anyio
async def test_an_async_webhook_test_may_take_as_long() -> None:
    with diagnosing() as (url, asked, may_respond):
        async with AsyncConvokeClient(url, timeout_s=0.2) as client:
            diagnosis = asyncio.ensure_future(client.test_webhook(instance_id="slow"))
            assert await asyncio.to_thread(asked.wait, DEADLINE_S)
            with pytest.raises(ConvokeError, match="timeout"):
                await client.healthz()
            may_respond.set()
            assert (await diagnosis).success


def test_pause_before_another_try_has_a_maximum() -> None:
    lost = ConvokeError("unreachable", "")
    pauses_s = [retry_wait_s(lost, attempt, 5_000) for attempt in (1, 12, 15, 2_000)]
    assert all(pause_s is not None and pause_s <= RETRY_WAIT_S_MAX for pause_s in pauses_s)
    assert pauses_s[0] is not None
    assert pauses_s[0] <= 0.25
