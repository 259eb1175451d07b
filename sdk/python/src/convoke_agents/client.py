"""The client that blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from convoke_agents.blocking import Pulling, blocking
from convoke_agents.errors import ConvokeError
from convoke_agents.events import FeedEvent, listen
from convoke_agents.given import given
from convoke_agents.models import BackupProgress, Diagnosis, InviteWithLink, Message, RedeemedInvite, SentMessage
from convoke_agents.number_option import check_number
from convoke_agents.operations import Operations
from convoke_agents.pull import AsyncPulling, OnConnection
from convoke_agents.requests import (
    DELETE_TIMEOUT_S,
    TEST_TIMEOUT_S,
    TIMEOUT_S,
    Requests,
    Target,
    is_backup,
    read,
    segment,
)
from convoke_agents.sending import (
    SEND_ATTEMPTS_MAX,
    RawJson,
    Sending,
    message_to_send,
    reply_to_send,
    retry_wait_s,
)


class ConvokeClient(Operations):
    """The API of Convoke, one method for each operation. Every method raises `ConvokeError`.

    Several threads may share one client.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        send_attempts_max: int = SEND_ATTEMPTS_MAX,
    ) -> None:
        """
        :param base_url: The URL of Convoke, such as `http://127.0.0.1:8080`; a path in it is kept.
        :param api_key: Not needed while Convoke listens on loopback only and no key was made.
        :param timeout_s: How long one request may take. It limits each step by itself: to connect, to send, and to wait
            for the next bytes of the response. So a server that sends its headers slowly, byte by byte, can hold a call
            for longer. `AsyncConvokeClient` limits the whole request, response included.
        :param send_attempts_max: How often `send_message` and `send_reply` try, the first time included; 1 for no
            retry. Every other call tries as often when the service is overloaded and says when to try again.
        :raises ValueError: base_url is no http or https URL, or a number is NaN or out of its range
        """
        check_number("send_attempts_max", send_attempts_max, 1)
        self._target = Target.of(base_url, api_key, timeout_s)
        self._requests = Requests(self._target, send_attempts_max)
        self._send_attempts_max = send_attempts_max

    @property
    def base_url(self) -> str:
        return self._target.base_url

    def close(self) -> None:
        """Closes the connections. `with ConvokeClient(…) as client:` closes them too."""
        self._requests.close()

    def __enter__(self) -> ConvokeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send_message(
        self,
        meeting_id: str | int,
        message: Mapping[str, Any] | RawJson,
        *,
        target_agents: Sequence[str] | None = None,
        from_agent: str | None = None,
        in_reply_to: str | None = None,
        expires_in_s: int | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> SentMessage:
        """Sends a message in a meeting. When it returns, the message is stored and its pushes are queued.

        Tries again when Convoke cannot be reached, does not respond in time, or responds 429, 502, 503 or 504. Each try
        has the same idempotency key, so the message is stored once. Pauses for as long as the server asks.

        :param message: Any JSON object. A `RawJson` is sent as it is written.
        :param target_agents: Push only to these agents; empty or absent: to all agents of the meeting.
        :param from_agent: The agent that sends the message. A message to all agents is not pushed to this agent.
            Absent: a person, or a program that is no agent.
        :param in_reply_to: The message_id of the message that this one answers, in the same meeting.
        :param expires_in_s: After this many seconds the message is no longer pushed, if that is earlier than the limit
            of the service.
        :param idempotency_key: A random key when absent. Give your own key to repeat a send safely after a restart.
        :param traceparent: The trace that the message belongs to, as in W3C Trace Context. An `httpx` that
            OpenTelemetry instruments adds it by itself.
        :param tracestate: The state of that trace.
        """
        return self._store(
            message_to_send(
                meeting_id,
                message,
                target_agents=target_agents,
                from_agent=from_agent,
                in_reply_to=in_reply_to,
                expires_in_s=expires_in_s,
                idempotency_key=idempotency_key,
                traceparent=traceparent,
                tracestate=tracestate,
            )
        )

    def send_reply(
        self,
        reply_token: str,
        reply: str | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> SentMessage:
        """Replies to an earlier push, without a key: in the meeting of the push, as one of its `target_agents`.

        Tries again as `send_message` does.

        :param reply_token: `reply_token` of the push; good for a day.
        :param reply: A text, which becomes `{"content": text}`, or `{"message": {…}}` with `from_agent` and
            `target_agents` if they are needed.
        """
        return self._store(
            reply_to_send(
                reply_token, reply, idempotency_key=idempotency_key, traceparent=traceparent, tracestate=tracestate
            )
        )

    def _store(self, sending: Sending) -> SentMessage:
        attempt = 1
        while True:
            try:
                return self._requests.call(
                    "POST", sending.path, SentMessage, text=sending.text, headers=sending.headers, attempts_max=1
                )
            except ConvokeError as error:
                error.idempotency_key = sending.idempotency_key
                wait_s = retry_wait_s(error, attempt, self._send_attempts_max)
                if wait_s is None:
                    raise
            time.sleep(wait_s)
            attempt += 1

    def all_messages(self, meeting_id: str | int, *, after_seq: int = 0, limit: int | None = None) -> Iterator[Message]:
        """Every message of a meeting after `after_seq`, in order, page after page. `limit` is the size of a page."""
        while True:
            page = self.list_messages(meeting_id, after_seq=after_seq, limit=limit)
            yield from page.data
            if not page.has_more or not page.data:
                return
            after_seq = page.data[-1].seq

    def delete_instance(self, instance_id: str) -> None:
        """Deletes an instance and cancels its pending deliveries.

        Waits for up to 60 s: they may be a million.

        :param instance_id: The id of an instance.
        """
        path = f"/api/v1/instances/{segment(instance_id)}/"
        self._requests.call("DELETE", path, None, timeout_s=DELETE_TIMEOUT_S)

    def test_webhook(self, *, instance_id: str) -> Diagnosis:
        """Sends one signed sample push and returns the result of each stage. A failed push is no error.

        Waits for up to 40 s, because the machine may take as long as for an attempt, 30 s at most.

        :param instance_id: The id of an instance.
        """
        path = "/api/v1/instances/webhook-test/"
        body = given(instance_id=instance_id)
        return self._requests.call("POST", path, Diagnosis, body=body, timeout_s=TEST_TIMEOUT_S)

    def create_invite(
        self,
        *,
        meeting_ids: Sequence[str],
        agent_ids: Sequence[str],
        instance_id: str | None = None,
        expires_in_s: int | None = None,
    ) -> InviteWithLink:
        """Makes a one-time link that lets a machine into meetings.

        The link begins with the `public_url` of the service. When that is not set, it begins with `base_url`, because a
        service behind a proxy may not know its own address.
        """
        made = super().create_invite(
            meeting_ids=meeting_ids, agent_ids=agent_ids, instance_id=instance_id, expires_in_s=expires_in_s
        )
        return made if made.is_public_url else made.model_copy(update={"link": self._target.link_here(made.link)})

    def redeem_invite(self, link: str) -> RedeemedInvite:
        """Redeems the link of an invite, once, and returns a key.

        Needs no key: make the client with the part of the link before `/invite/` as `base_url`. When the response is
        lost, the link cannot be redeemed again.

        :raises ConvokeError: `invite_does_not_exist`; `invite_ended` when the invite was redeemed or revoked, or has
            expired
        :raises ValueError: it is no link of this service
        """
        body = {"secret": self._target.secret_of(link)}
        return self._requests.call("POST", "/api/v1/invites/redeem/", RedeemedInvite, body=body)

    def pull(
        self,
        instance_id: str,
        *,
        concurrency: int = 1,
        secret: str | Sequence[str] | None = None,
        on_connection: OnConnection | None = None,
    ) -> Pulling:
        """The pushes of an instance with the transport `pull`, as they arrive. Each of them needs a result.

        When the connection is lost, the client connects again. The iteration raises when the service refuses the
        connection for good.

            for push in client.pull("laptop-anna"):
                handle(push.message)
                push.respond()

        :param concurrency: How many pushes you can have in your hands at a time, each of another meeting. A push of a
            meeting waits while you have another one of that meeting in hand, until its result or its deadline. With
            more than one, do the work in threads of your own, and not in the loop.
        :param secret: The webhook_secret of the instance: then each push is verified, and a push that is not genuine is
            refused.
        :param on_connection: Called when the service responds, and when it is lost and will be asked again.
        """
        target = self._target
        return Pulling(
            lambda: AsyncPulling(
                target,
                instance_id,
                concurrency=concurrency,
                secret=secret,
                on_connection=on_connection,
            )
        )

    def stream_events(
        self,
        *,
        instance_id: str | None = None,
        meeting_id: str | None = None,
        last_event_id: str | None = None,
        on_connection: OnConnection | None = None,
    ) -> Iterator[FeedEvent]:
        """Events as they happen.

        When the connection is lost, the client connects again and continues after the last event. If events are
        missing, the iteration yields an event `gap`. It raises when the service refuses a connection for good.

        :param last_event_id: The id of the event after which to continue.
        """
        query = given(instance_id=instance_id, meeting_id=meeting_id)
        return blocking(lambda: listen(self._target, query, last_event_id, on_connection))

    def fetch_backup(self, backup_id: str) -> BackupProgress | Iterator[bytes]:
        """The progress of the copy; or the copy itself, once, in pieces, when it is complete.

        :raises ConvokeError: `backup_does_not_exist` when the copy was fetched already, or nobody asked for it for a
            minute
        """
        url = self._target.url_of(f"/api/v1/backups/{segment(backup_id)}/", None)
        pieces = self._pieces(url)
        first = next(pieces)
        return first if isinstance(first, BackupProgress) else pieces

    def _pieces(self, url: str) -> Iterator[Any]:
        """The progress; or None, and then the pieces of the copy."""
        with self._requests.open("GET", url) as response:
            if not is_backup(response):
                text = response.read().decode(errors="replace")
                yield read(response, text, url, BackupProgress)
                return
            yield None
            yield from response.iter_bytes()
