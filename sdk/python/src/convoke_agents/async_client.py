"""The client whose methods are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from convoke_agents.async_operations import AsyncOperations
from convoke_agents.errors import ConvokeError
from convoke_agents.events import FeedEvent, listen
from convoke_agents.given import given
from convoke_agents.models import BackupProgress, Diagnosis, InviteWithLink, Message, RedeemedInvite, SentMessage
from convoke_agents.number_option import check_number
from convoke_agents.pull import AsyncPulling, OnConnection
from convoke_agents.requests import (
    DELETE_TIMEOUT_S,
    TEST_TIMEOUT_S,
    TIMEOUT_S,
    AsyncRequests,
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


class AsyncConvokeClient(AsyncOperations):
    """`ConvokeClient` for asyncio: the same methods, to be awaited. It belongs to one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        send_attempts_max: int = SEND_ATTEMPTS_MAX,
    ) -> None:
        """The same arguments as those of `ConvokeClient`."""
        check_number("send_attempts_max", send_attempts_max, 1)
        self._target = Target.of(base_url, api_key, timeout_s)
        self._requests = AsyncRequests(self._target, send_attempts_max)
        self._send_attempts_max = send_attempts_max

    @property
    def base_url(self) -> str:
        return self._target.base_url

    async def aclose(self) -> None:
        """Closes the connections. `async with AsyncConvokeClient(…) as client:` closes them too."""
        await self._requests.aclose()

    async def __aenter__(self) -> AsyncConvokeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def send_message(
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
        """Sends a message in a meeting, and tries again if needed: `ConvokeClient.send_message`."""
        return await self._store(
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

    async def send_reply(
        self,
        reply_token: str,
        reply: str | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> SentMessage:
        """Replies to an earlier push, without a key: `ConvokeClient.send_reply`."""
        return await self._store(
            reply_to_send(
                reply_token, reply, idempotency_key=idempotency_key, traceparent=traceparent, tracestate=tracestate
            )
        )

    async def _store(self, sending: Sending) -> SentMessage:
        attempt = 1
        while True:
            try:
                return await self._requests.call(
                    "POST", sending.path, SentMessage, text=sending.text, headers=sending.headers, attempts_max=1
                )
            except ConvokeError as error:
                error.idempotency_key = sending.idempotency_key
                wait_s = retry_wait_s(error, attempt, self._send_attempts_max)
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
            attempt += 1

    async def all_messages(
        self, meeting_id: str | int, *, after_seq: int = 0, limit: int | None = None
    ) -> AsyncIterator[Message]:
        """Every message of a meeting after `after_seq`, in order, page after page. `limit` is the size of a page."""
        while True:
            page = await self.list_messages(meeting_id, after_seq=after_seq, limit=limit)
            for message in page.data:
                yield message
            if not page.has_more or not page.data:
                return
            after_seq = page.data[-1].seq

    async def delete_instance(self, instance_id: str) -> None:
        """Deletes an instance and cancels its pending deliveries.

        Waits for up to 60 s: they may be a million.

        :param instance_id: The id of an instance.
        """
        path = f"/api/v1/instances/{segment(instance_id)}/"
        await self._requests.call("DELETE", path, None, timeout_s=DELETE_TIMEOUT_S)

    async def test_webhook(self, *, instance_id: str) -> Diagnosis:
        """Sends one signed sample push and returns the result of each stage: `ConvokeClient.test_webhook`."""
        path = "/api/v1/instances/webhook-test/"
        body = given(instance_id=instance_id)
        return await self._requests.call("POST", path, Diagnosis, body=body, timeout_s=TEST_TIMEOUT_S)

    async def create_invite(
        self,
        *,
        meeting_ids: Sequence[str],
        agent_ids: Sequence[str],
        instance_id: str | None = None,
        expires_in_s: int | None = None,
    ) -> InviteWithLink:
        """Makes a one-time link that lets a machine into meetings.

        The link begins with the `public_url` of the service, or else with `base_url`.
        """
        made = await super().create_invite(
            meeting_ids=meeting_ids, agent_ids=agent_ids, instance_id=instance_id, expires_in_s=expires_in_s
        )
        return made if made.is_public_url else made.model_copy(update={"link": self._target.link_here(made.link)})

    async def redeem_invite(self, link: str) -> RedeemedInvite:
        """Redeems the link of an invite, once, and returns a key: `ConvokeClient.redeem_invite`."""
        body = {"secret": self._target.secret_of(link)}
        return await self._requests.call("POST", "/api/v1/invites/redeem/", RedeemedInvite, body=body)

    def pull(
        self,
        instance_id: str,
        *,
        concurrency: int = 1,
        secret: str | Sequence[str] | None = None,
        on_connection: OnConnection | None = None,
    ) -> AsyncPulling:
        """The pushes of an instance with the transport `pull`, as they arrive: `ConvokeClient.pull`.

            async for push in client.pull("laptop-anna"):
                await handle(push.message)
                push.respond()

        With a concurrency of more than one, do the work in tasks of your own, and not in the loop.
        """
        return AsyncPulling(
            self._target, instance_id, concurrency=concurrency, secret=secret, on_connection=on_connection
        )

    def stream_events(
        self,
        *,
        instance_id: str | None = None,
        meeting_id: str | None = None,
        last_event_id: str | None = None,
        on_connection: OnConnection | None = None,
    ) -> AsyncGenerator[FeedEvent, None]:
        """Events as they happen, over as many connections as needed: `ConvokeClient.stream_events`."""
        query = given(instance_id=instance_id, meeting_id=meeting_id)
        return listen(self._target, query, last_event_id, on_connection)

    async def fetch_backup(self, backup_id: str) -> BackupProgress | AsyncIterator[bytes]:
        """The progress of the copy; or the copy itself, once, in pieces: `ConvokeClient.fetch_backup`."""
        url = self._target.url_of(f"/api/v1/backups/{segment(backup_id)}/", None)
        pieces = self._pieces(url)
        first = await pieces.__anext__()
        return first if isinstance(first, BackupProgress) else pieces

    async def _pieces(self, url: str) -> AsyncIterator[Any]:
        """The progress; or None, and then the pieces of the copy."""
        async with self._requests.open("GET", url) as response:
            if not is_backup(response):
                text = (await response.aread()).decode(errors="replace")
                yield read(response, text, url, BackupProgress)
                return
            yield None
            async for piece in response.aiter_bytes():
                yield piece
