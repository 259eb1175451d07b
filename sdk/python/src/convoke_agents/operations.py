# Written from the OpenAPI document by `npm run generate`: change the schemas in src/http/schemas/ instead.
"""One method for each operation of the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from convoke_agents.given import LEFT_OUT, LeftOut, given
from convoke_agents.models import (
    ApiKey,
    ApiKeyPage,
    ApiKeyWithToken,
    AuditAction,
    AuditEntry,
    AuditEntryPage,
    Backup,
    Counts,
    Delivery,
    DeliveryPage,
    DeliveryPush,
    DeliveryState,
    DeliveryWithAttempts,
    Demo,
    Diagnosis,
    DroppedDeliveries,
    Explanation,
    ExplanationPage,
    FoundMessage,
    FoundMessagePage,
    Health,
    Instance,
    InstanceHistory,
    InstancePage,
    Invite,
    InvitePage,
    InviteWithLink,
    LeftMeeting,
    Meeting,
    MeetingInstance,
    MeetingInstancePage,
    MeetingPage,
    Membership,
    MessagePage,
    MessageTrace,
    OpenSession,
    OpenSessionPage,
    Outcome,
    PortalLink,
    Recovered,
    Reencryption,
    RegisteredInstance,
    RotatedSecret,
    Runtime,
    Scope,
    SentMessages,
    ServiceHistory,
    ServiceNodeList,
    ServiceStatus,
    SuccessStatuses,
    Transport,
)
from convoke_agents.requests import Requests, segment


class Operations:
    """The methods of a client that are one request each."""

    _requests: Requests

    def register(
        self,
        *,
        instance_id: str,
        instance_name: str,
        agent_ids: Sequence[str],
        transport: Transport | None = None,
        ack_timeout_s: int | None = None,
        timeout_s: int | None = None,
        runtime: Runtime | None = None,
        runtime_options: Mapping[str, Any] | None = None,
        lease_s: int | None = None,
        webhook_url: str | None = None,
        webhook_headers: Mapping[str, str] | None = None,
        webhook_secret: str | None = None,
        success_statuses: SuccessStatuses | None = None,
        replies: bool | None = None,
    ) -> RegisteredInstance:
        """Register an instance, or update it.

        Creates the instance, or overwrites its name, agents and URL when the id is known. Every registration
        switches it on and ends its back-off. webhook_headers that are left out stay as they are, unless
        webhook_url has another origin or transport changes: then they are dropped, because they may hold a
        credential for the old server, and dropped_header_names lists them.

        :param instance_id: The id of the instance: not `.` or `..`, which no client can put into a path.
        :param instance_name: The name that people see.
        :param agent_ids: Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in
            all.
        :param ack_timeout_s: How long a machine that pulls has for the result of a push, in seconds; 30 unless it
            was set, 600 at most. A webhook has timeout_s instead.
        :param timeout_s: How long an attempt at webhook_url may take, in seconds. The default is 5, or the time
            that the runtime needs; a registration that ends the runtime and gives no timeout_s also ends its
            timeout. With more than 5, an attempt that a stop of the service interrupts is made again.
        :param runtime_options: The options of the runtime: `convoke runtimes NAME` lists them. Stored encrypted;
            no response contains their values. Each registration gives them again.
        :param lease_s: Only with the runtime mcp_events: after how many seconds the instance is removed unless it
            registers again; 3600 when absent.
        :param webhook_url: Where pushes are sent: http or https, no user name or password in it.
        :param webhook_headers: Headers sent with every push, such as authorization. No response contains their
            values. Given headers replace all old ones; without this field the old ones stay.
        :param webhook_secret: Standard Webhooks secret: whsec_ and base64 of 24 to 64 bytes. When absent, the
            first registration makes one.
        :param replies: Whether the instance may answer a push with replies, which are sent in the meeting: in its
            response, or later with the token of the push. When absent, it is true in a registration with a
            runtime other than mcp_events; otherwise it stays as it is, and is false for a new instance.
        """
        return self._requests.call(
            "POST",
            "/api/v1/instances/register/",
            RegisteredInstance,
            body=given(
                instance_id=instance_id,
                instance_name=instance_name,
                agent_ids=agent_ids,
                transport=transport,
                ack_timeout_s=ack_timeout_s,
                timeout_s=timeout_s,
                runtime=runtime,
                runtime_options=runtime_options,
                lease_s=lease_s,
                webhook_url=webhook_url,
                webhook_headers=webhook_headers,
                webhook_secret=webhook_secret,
                success_statuses=success_statuses,
                replies=replies,
            ),
        )

    def list_instances(
        self,
        *,
        agent_id: str | None = None,
        meeting_id: str | None = None,
        is_active: bool | None = None,
        paused: bool | None = None,
        health: Health | None = None,
        q: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> InstancePage:
        """List instances, in the order of their ids.

        Those that match all filters. A key that is limited to instances or meetings finds only those. With q,
        is_active, paused or health the service has to read instances, and one request reads a limited number.
        When it stops at that limit, `searched_to` says how far it came, and next_cursor continues there.

        :param agent_id: Only instances that host this agent.
        :param meeting_id: Only instances that are in this meeting.
        :param is_active: Only active, or only inactive ones.
        :param paused: Only paused ones, or only the others. An instance is paused while is_active or
            webhook_enabled is false.
        :param health: `unknown`: nothing was tried yet; `up`: the last attempt succeeded; `failing`: 1 to 4
            failures in a row; `down`: 5 or more.
        :param q: Part of the id or the name.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            "/api/v1/instances/",
            InstancePage,
            query=given(
                agent_id=agent_id,
                meeting_id=meeting_id,
                is_active=is_active,
                paused=paused,
                health=health,
                q=q,
                limit=limit,
                cursor=cursor,
            ),
        )

    def all_instances(
        self,
        *,
        agent_id: str | None = None,
        meeting_id: str | None = None,
        is_active: bool | None = None,
        paused: bool | None = None,
        health: Health | None = None,
        q: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Instance]:
        """Yields each item of `list_instances`, and asks for the next page when it is needed. `limit` is the size of
        a page."""
        cursor: str | None = None
        while True:
            page = self.list_instances(
                agent_id=agent_id,
                meeting_id=meeting_id,
                is_active=is_active,
                paused=paused,
                health=health,
                q=q,
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def get_instance(
        self,
        instance_id: str,
    ) -> Instance:
        """One instance.

        With its health, its last failure, and the number of its pending deliveries.

        :param instance_id: The id of an instance.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/instances/{segment(instance_id)}/",
            Instance,
        )

    def update_instance(
        self,
        instance_id: str,
        *,
        instance_name: str | None = None,
        agent_ids: Sequence[str] | None = None,
        webhook_url: str | None = None,
        is_active: bool | None = None,
        webhook_enabled: bool | None = None,
        webhook_headers: Mapping[str, str] | None = None,
        success_statuses: SuccessStatuses | None = None,
        ack_timeout_s: int | None = None,
        timeout_s: int | None = None,
        replies: bool | None = None,
        owner_key_id: str | LeftOut | None = LEFT_OUT,
    ) -> Instance:
        """Change an instance, or switch it on or off.

        Only the fields that are given change. Switching it on ends its back-off, and its pending deliveries are
        sent. With another webhook_url they go to that URL, and the health begins again. If the origin is another
        one, webhook_headers are dropped unless they are given again. The agents in its meetings stay as they are.

        :param instance_id: The id of an instance.
        :param instance_name: The name that people see.
        :param agent_ids: Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in
            all.
        :param webhook_url: Where pushes are sent: http or https, no user name or password in it.
        :param is_active: Whether the instance takes part at all.
        :param webhook_enabled: Whether pushes are sent.
        :param webhook_headers: Headers sent with every push, such as authorization. No response contains their
            values. Given headers replace all old ones; without this field the old ones stay.
        :param ack_timeout_s: How long a machine that pulls has for the result of a push, in seconds; 30 unless it
            was set, 600 at most. A webhook has timeout_s instead.
        :param timeout_s: How long an attempt at webhook_url may take, in seconds. The default is 5, or the time
            that the runtime needs; a registration that ends the runtime and gives no timeout_s also ends its
            timeout. With more than 5, an attempt that a stop of the service interrupts is made again.
        :param replies: Whether the instance may answer a push with replies, which are sent in the meeting: in its
            response, or later with the token of the push. When absent, it is true in a registration with a
            runtime other than mcp_events; otherwise it stays as it is, and is false for a new instance.
        :param owner_key_id: Gives the instance to another key, or (null) to admins only. Only admins may do that.
            An instance that pulls loses its webhook_headers, unless they are given again.
        """
        return self._requests.call(
            "PATCH",
            f"/api/v1/instances/{segment(instance_id)}/",
            Instance,
            body=given(
                {"owner_key_id": owner_key_id},
                instance_name=instance_name,
                agent_ids=agent_ids,
                webhook_url=webhook_url,
                is_active=is_active,
                webhook_enabled=webhook_enabled,
                webhook_headers=webhook_headers,
                success_statuses=success_statuses,
                ack_timeout_s=ack_timeout_s,
                timeout_s=timeout_s,
                replies=replies,
            ),
        )

    def delete_instance(
        self,
        instance_id: str,
    ) -> None:
        """Delete an instance and cancel its pending deliveries.

        It leaves every meeting. The history of the meetings stays.

        :param instance_id: The id of an instance.
        """
        self._requests.call(
            "DELETE",
            f"/api/v1/instances/{segment(instance_id)}/",
            None,
        )

    def heartbeat(
        self,
        instance_id: str,
    ) -> Instance:
        """Report that the instance is alive; ends its back-off.

        Sets last_seen_at. Pending deliveries of the instance are sent at once instead of at the end of its
        back-off.

        :param instance_id: The id of an instance.
        """
        return self._requests.call(
            "POST",
            f"/api/v1/instances/{segment(instance_id)}/heartbeat/",
            Instance,
        )

    def rotate_secret(
        self,
        instance_id: str,
        *,
        overlap_seconds: int | None = None,
    ) -> RotatedSecret:
        """Make a new webhook secret; until the overlap ends, both sign.

        Until the overlap ends every push has two signatures, so that a receiver with either secret accepts it.
        Earlier overlaps go on.

        :param instance_id: The id of an instance.
        :param overlap_seconds: How long the previous secret also signs; a day when absent, 30 days at most.
        """
        return self._requests.call(
            "POST",
            f"/api/v1/instances/{segment(instance_id)}/rotate-secret/",
            RotatedSecret,
            body=given(
                overlap_seconds=overlap_seconds,
            ),
        )

    def test_webhook(
        self,
        *,
        instance_id: str,
    ) -> Diagnosis:
        """Push a sample message to an instance and report the result.

        Makes one signed push with the header convoke-test to the stored address. A failed push is no error of
        this call: the diagnosis has the result of each stage.

        :param instance_id: The id of an instance.
        """
        return self._requests.call(
            "POST",
            "/api/v1/instances/webhook-test/",
            Diagnosis,
            body=given(
                instance_id=instance_id,
            ),
        )

    def recover(
        self,
        instance_id: str,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        delivery_ids: Sequence[str] | None = None,
        limit: int | None = None,
        dry_run: bool | None = None,
    ) -> Recovered:
        """Queue failed or cancelled deliveries of an instance again.

        The deliveries that failed from `since` to `until`, or those of `delivery_ids` that failed or were
        cancelled, with the same webhook-id as before. With `dry_run` it only counts them. When `done` is false,
        call it again with the `until` of the response. No delivery is queued twice, even after a restart. To
        cancel, do not call it again; deliveries that are queued already are still sent. The instance gets them
        one after the other, beside new messages.

        :param instance_id: The id of an instance.
        :param since: Queues the deliveries again that failed at or after this time.
        :param until: With since: only those that failed at or before this time. Absent, or later than now: now.
        :param delivery_ids: Instead of since: these deliveries of the instance, if they failed or were cancelled.
            Others in the list are left as they are.
        :param limit: With since: the most deliveries that this call queues again. A small limit shows the
            progress. One call queues all of delivery_ids.
        :param dry_run: Only count the deliveries that would be queued again, and the messages that the instance
            missed while it was switched off.
        """
        return self._requests.call(
            "POST",
            f"/api/v1/instances/{segment(instance_id)}/recover/",
            Recovered,
            body=given(
                since=since,
                until=until,
                delivery_ids=delivery_ids,
                limit=limit,
                dry_run=dry_run,
            ),
        )

    def join_meeting(
        self,
        *,
        instance_id: str,
        meeting_id: str | int,
        agent_ids: Sequence[str],
        wake: Literal["all", "targeted", "people"] | None = None,
        catch_up: Literal["all", "latest"] | None = None,
        max_age_s: int | None = None,
    ) -> Membership:
        """Link an instance to a meeting, with the agents that take part.

        Joining again replaces the agents and undoes a leave. It replaces `wake`, `catch_up` and `max_age_s` if
        they are given. The agents need not be in the list of the instance.

        :param instance_id: The id of an instance.
        :param meeting_id: The meeting: not `.` or `..`, which no client can put into a path. An integer in digits
            is taken as this text.
        :param agent_ids: The agents of the instance that take part; they replace those of an earlier join.
        :param wake: Which messages for these agents are pushed. `all`: every one; `targeted`: only those that name
            one of them in target_agents; `people`: only those of people. The others are only in the history. When
            absent, it stays as it is; at the first join it is `all`.
        :param catch_up: Which of the messages that waited while the machine was away are pushed. `all`: every one;
            `latest`: only the newest message of agents and the newest of people; the others are cancelled
            (`superseded`). When absent, it stays as it is; at the first join it is `all`.
        :param max_age_s: A message is cancelled (`max_age`) if it is older than this many seconds when it would be
            pushed next; 0: a message of any age is pushed. When absent, it stays as it is; at the first join it
            is 0.
        """
        return self._requests.call(
            "POST",
            "/api/v1/instances/join-meeting/",
            Membership,
            body=given(
                instance_id=instance_id,
                meeting_id=meeting_id,
                agent_ids=agent_ids,
                wake=wake,
                catch_up=catch_up,
                max_age_s=max_age_s,
            ),
        )

    def leave_meeting(
        self,
        *,
        instance_id: str,
        meeting_id: str | int,
    ) -> LeftMeeting:
        """Take an instance out of a meeting.

        Earlier messages are still delivered. If the instance is not in the meeting, the service logs that, and it
        is no error.

        :param instance_id: The id of an instance.
        :param meeting_id: The meeting: not `.` or `..`, which no client can put into a path. An integer in digits
            is taken as this text.
        """
        return self._requests.call(
            "POST",
            "/api/v1/instances/leave-meeting/",
            LeftMeeting,
            body=given(
                instance_id=instance_id,
                meeting_id=meeting_id,
            ),
        )

    def list_meetings(
        self,
        *,
        q: str | None = None,
        instance_id: str | None = None,
        include_left: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> MeetingPage:
        """List meetings, in the order of their ids.

        Each with the number of its instances and agents, and the time of its last activity. With q the service
        has to read the ids, and one request reads a limited number. When it stops at that limit, `searched_to`
        says how far it came, and next_cursor continues there.

        :param q: Part of the id.
        :param instance_id: Only meetings that this instance is in.
        :param include_left: With instance_id: also those that it has left.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            "/api/v1/meetings/",
            MeetingPage,
            query=given(
                q=q,
                instance_id=instance_id,
                include_left=include_left,
                limit=limit,
                cursor=cursor,
            ),
        )

    def all_meetings(
        self,
        *,
        q: str | None = None,
        instance_id: str | None = None,
        include_left: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[Meeting]:
        """Yields each item of `list_meetings`, and asks for the next page when it is needed. `limit` is the size of
        a page."""
        cursor: str | None = None
        while True:
            page = self.list_meetings(
                q=q,
                instance_id=instance_id,
                include_left=include_left,
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def get_meeting(
        self,
        meeting_id: str | int,
    ) -> Meeting:
        """One meeting.

        With the number of instances and agents, the pending deliveries, and whether it is paused.

        :param meeting_id: The id of a meeting.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/meetings/{segment(meeting_id)}/",
            Meeting,
        )

    def update_meeting(
        self,
        meeting_id: str | int,
        *,
        paused: bool | None = None,
        hop_limit: int | LeftOut | None = LEFT_OUT,
        pair_limit: int | LeftOut | None = LEFT_OUT,
        pair_window_s: int | LeftOut | None = LEFT_OUT,
    ) -> Meeting:
        """Pause a meeting, resume it, or set the limits of its loop guard.

        While a meeting is paused, messages are accepted as always, and their deliveries wait: no attempt is made,
        and no retry is spent. After it is resumed, they are delivered in their order. A push that is in flight
        ends as usual. The limits say when agents that answer each other are stopped.

        :param meeting_id: The id of a meeting.
        :param paused: True: the deliveries of the meeting wait until it is set to false.
        :param hop_limit: Messages of agents that answer each other, in a row. 0 switches the rule off, null takes
            the setting of the service.
        :param pair_limit: Messages from one agent to one other within the window. 0 switches the rule off, null
            takes the setting of the service.
        :param pair_window_s: The window of pair_limit, in seconds. 0 switches the rule off, null takes the setting
            of the service.
        """
        return self._requests.call(
            "PATCH",
            f"/api/v1/meetings/{segment(meeting_id)}/",
            Meeting,
            body=given(
                {"hop_limit": hop_limit, "pair_limit": pair_limit, "pair_window_s": pair_window_s},
                paused=paused,
            ),
        )

    def list_meeting_instances(
        self,
        meeting_id: str | int,
        *,
        include_left: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> MeetingInstancePage:
        """The instances in a meeting.

        The memberships of a meeting, each with the name and the health of its instance.

        :param meeting_id: The id of a meeting.
        :param include_left: Also those that have left.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/meetings/{segment(meeting_id)}/instances/",
            MeetingInstancePage,
            query=given(
                include_left=include_left,
                limit=limit,
                cursor=cursor,
            ),
        )

    def all_meeting_instances(
        self,
        meeting_id: str | int,
        *,
        include_left: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[MeetingInstance]:
        """Yields each item of `list_meeting_instances`, and asks for the next page when it is needed. `limit` is the
        size of a page."""
        cursor: str | None = None
        while True:
            page = self.list_meeting_instances(
                meeting_id,
                include_left=include_left,
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def update_membership(
        self,
        meeting_id: str | int,
        instance_id: str,
        *,
        agent_ids: Sequence[str] | None = None,
        wake: Literal["all", "targeted", "people"] | None = None,
        catch_up: Literal["all", "latest"] | None = None,
        max_age_s: int | None = None,
    ) -> Membership:
        """Change the agents or the rules of an instance in a meeting.

        Changes its agents, `wake`, `catch_up` and `max_age_s` in the meeting. They apply at once, even to
        messages that already wait. Unlike another join, this never undoes a leave.

        :param meeting_id: The id of a meeting.
        :param instance_id: The id of an instance.
        :param agent_ids: The agents of the instance that take part; they replace the present ones.
        :param wake: Which messages for these agents are pushed: `all`, `targeted` or `people`, as for a join.
        :param catch_up: Which of the messages that waited while the machine was away are pushed: `all` or
            `latest`, as for a join.
        :param max_age_s: A message is cancelled if it is older than this many seconds when it would be pushed
            next; 0: a message of any age is pushed.
        """
        return self._requests.call(
            "PATCH",
            f"/api/v1/meetings/{segment(meeting_id)}/instances/{segment(instance_id)}/",
            Membership,
            body=given(
                agent_ids=agent_ids,
                wake=wake,
                catch_up=catch_up,
                max_age_s=max_age_s,
            ),
        )

    def explain(
        self,
        meeting_id: str | int,
        *,
        target_agents: Sequence[str] | None = None,
        from_agent: str | None = None,
        in_reply_to: str | None = None,
        instance_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ExplanationPage:
        """Who would get a message that is sent now, and why the others would not.

        Stores nothing and pushes nothing. Returns each membership of the meeting, even an ended one, with the
        agents to which the message would be pushed. With from_agent a page holds at most 100, and fewer where
        much was said: next_cursor continues there.

        :param meeting_id: The id of a meeting.
        :param target_agents: An agent that the message is for; repeat the parameter for more agents, at most 100.
            Absent: all agents of the meeting but from_agent.
        :param from_agent: The agent that says it; absent: a person, or a program that is no agent.
        :param in_reply_to: The message_id, in the same meeting, that it answers.
        :param instance_id: Only the membership of this instance.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/meetings/{segment(meeting_id)}/explain/",
            ExplanationPage,
            query=given(
                target_agents=target_agents,
                from_agent=from_agent,
                in_reply_to=in_reply_to,
                instance_id=instance_id,
                limit=limit,
                cursor=cursor,
            ),
        )

    def explain_all(
        self,
        meeting_id: str | int,
        *,
        target_agents: Sequence[str] | None = None,
        from_agent: str | None = None,
        in_reply_to: str | None = None,
        instance_id: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Explanation]:
        """Yields each item of `explain`, and asks for the next page when it is needed. `limit` is the size of a
        page."""
        cursor: str | None = None
        while True:
            page = self.explain(
                meeting_id,
                target_agents=target_agents,
                from_agent=from_agent,
                in_reply_to=in_reply_to,
                instance_id=instance_id,
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def list_messages(
        self,
        meeting_id: str | int,
        *,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int | None = None,
    ) -> MessagePage:
        """The messages of a meeting, in the order in which they were sent.

        The latest ones, or those after or before a seq. A page may end early when its messages are large.

        :param meeting_id: The id of a meeting.
        :param after_seq: The messages that follow this one.
        :param before_seq: The messages that come just before this one. With neither after_seq nor before_seq: the
            latest.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/meetings/{segment(meeting_id)}/messages/",
            MessagePage,
            query=given(
                after_seq=after_seq,
                before_seq=before_seq,
                limit=limit,
            ),
        )

    def send_messages(
        self,
        *,
        messages: Sequence[Mapping[str, Any]],
    ) -> SentMessages:
        """Send many messages, in one meeting or in several.

        Each item is judged by itself. A bad item fails alone, and the response has its problem in its place. The
        messages are stored together, and within a meeting in the order of the list. Each counts as one send
        against the limits. When the key ends meanwhile, the rest of the list fails. When the storage fails, or
        the service is overloaded, the rest of the list fails too: send it again with the same idempotency keys.
        Each message has its own: the header Idempotency-Key is refused here.

        :param messages: At most 500; the body has at most 4 MiB. An item that is not valid fails alone.
        """
        return self._requests.call(
            "POST",
            "/api/v1/messages/",
            SentMessages,
            body=given(
                messages=messages,
            ),
        )

    def find_messages(
        self,
        *,
        id: str | None = None,
        meeting_id: str | None = None,
        seq: int | None = None,
        text: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> FoundMessagePage:
        """Find messages by an id, by their number in a meeting, or by their text; newest first.

        Messages of all meetings that the key may see, even those that nobody got. A search reads the messages
        themselves, and one request reads a limited number. When it stops at that limit, `searched_to` says how
        far it came, and next_cursor continues there.

        :param id: The message with this message_id, or the message of the delivery with this delivery_id (the
            webhook-id).
        :param meeting_id: Only messages of this meeting.
        :param seq: Only the message with this number in its meeting; with meeting_id it is found at once.
        :param text: Only messages whose JSON contains this text; capital letters from A to Z count as small
            letters.
        :param since: Sent at or after this time.
        :param until: Sent before this time.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            "/api/v1/messages/",
            FoundMessagePage,
            query=given(
                id=id,
                meeting_id=meeting_id,
                seq=seq,
                text=text,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
            ),
        )

    def find_messages_all(
        self,
        *,
        id: str | None = None,
        meeting_id: str | None = None,
        seq: int | None = None,
        text: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
    ) -> Iterator[FoundMessage]:
        """Yields each item of `find_messages`, and asks for the next page when it is needed. `limit` is the size of
        a page."""
        cursor: str | None = None
        while True:
            page = self.find_messages(
                id=id,
                meeting_id=meeting_id,
                seq=seq,
                text=text,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def get_message(
        self,
        message_id: str,
        *,
        limit: int | None = None,
        answers_after: int | None = None,
    ) -> MessageTrace:
        """One message: the messages that led to it, its answers, and its deliveries.

        The messages that led to this one, the nearest first; its answers; and its deliveries, newest first, each
        with its outcome.

        :param message_id: The id of a message.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param answers_after: Look for answers in the messages that follow this seq. Absent: in those that follow
            the message itself.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/messages/{segment(message_id)}/",
            MessageTrace,
            query=given(
                limit=limit,
                answers_after=answers_after,
            ),
        )

    def list_deliveries(
        self,
        *,
        instance_id: str | None = None,
        meeting_id: str | None = None,
        message_id: str | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        state: DeliveryState | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        status_code: int | None = None,
        outcome: Outcome | None = None,
        agent_id: str | None = None,
        text: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DeliveryPage:
        """List deliveries, newest first.

        The deliveries of messages to instances. Settled ones are removed when their retention ends. With one of
        instance_id, meeting_id and message_id the service finds them at once. In three cases it has to read
        deliveries, newest first: with two of these, for a key with limits, and with the other filters. One
        request reads a limited number. When it stops at that limit, `searched_to` says how far it came, and
        next_cursor continues there. `text` needs the scope read.

        :param instance_id: Only deliveries to this instance.
        :param meeting_id: Only deliveries of messages of this meeting.
        :param message_id: Only deliveries of this message.
        :param after_seq: With meeting_id: only deliveries of the messages that follow this one.
        :param before_seq: With meeting_id: only deliveries of the messages before this one.
        :param state: The state of a delivery. Every state but `pending` is final.
        :param since: Only deliveries of messages that were sent at or after this time.
        :param until: Only deliveries of messages that were sent before this time.
        :param status_code: Only deliveries with an attempt that got this status.
        :param outcome: How an attempt ended, in the order of its stages. With `tls_failed` and each value before
            it, the receiver was not reached.
        :param agent_id: Only deliveries for this agent, in all meetings.
        :param text: Only messages whose JSON contains this text; capital letters from A to Z count as small
            letters.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            "/api/v1/deliveries/",
            DeliveryPage,
            query=given(
                instance_id=instance_id,
                meeting_id=meeting_id,
                message_id=message_id,
                after_seq=after_seq,
                before_seq=before_seq,
                state=state,
                since=since,
                until=until,
                status_code=status_code,
                outcome=outcome,
                agent_id=agent_id,
                text=text,
                limit=limit,
                cursor=cursor,
            ),
        )

    def all_deliveries(
        self,
        *,
        instance_id: str | None = None,
        meeting_id: str | None = None,
        message_id: str | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        state: DeliveryState | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        status_code: int | None = None,
        outcome: Outcome | None = None,
        agent_id: str | None = None,
        text: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Delivery]:
        """Yields each item of `list_deliveries`, and asks for the next page when it is needed. `limit` is the size
        of a page."""
        cursor: str | None = None
        while True:
            page = self.list_deliveries(
                instance_id=instance_id,
                meeting_id=meeting_id,
                message_id=message_id,
                after_seq=after_seq,
                before_seq=before_seq,
                state=state,
                since=since,
                until=until,
                status_code=status_code,
                outcome=outcome,
                agent_id=agent_id,
                text=text,
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def get_delivery(
        self,
        delivery_id: str,
    ) -> DeliveryWithAttempts:
        """One delivery with every attempt.

        The response to each attempt, the time of the next one, and why the delivery waits.

        :param delivery_id: The id of a delivery.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/deliveries/{segment(delivery_id)}/",
            DeliveryWithAttempts,
        )

    def drop_deliveries(
        self,
        *,
        instance_id: str | None = None,
        meeting_id: str | None = None,
        up_to: str | None = None,
        dry_run: bool | None = None,
    ) -> DroppedDeliveries:
        """Cancel the waiting deliveries of an instance, or in a meeting.

        Cancels pending deliveries, with the reason `dropped`; they stay on record. With `dry_run` it only counts
        them. Messages that are sent meanwhile keep their deliveries, and a push that is in flight may still
        arrive. A key without the scope admin drops only the deliveries of its own instances. When `done` is
        false, call it again with the `up_to` of the response.

        :param instance_id: Drops the deliveries that wait for this instance.
        :param meeting_id: Drops the deliveries that wait in this meeting; with instance_id, only those for that
            instance.
        :param up_to: Drops no deliveries of messages after this one. Absent: none of messages that are sent from
            now on.
        :param dry_run: Only count the deliveries that would be dropped.
        """
        return self._requests.call(
            "POST",
            "/api/v1/deliveries/drop/",
            DroppedDeliveries,
            body=given(
                instance_id=instance_id,
                meeting_id=meeting_id,
                up_to=up_to,
                dry_run=dry_run,
            ),
        )

    def retry_delivery(
        self,
        delivery_id: str,
    ) -> DeliveryWithAttempts:
        """Queue a delivery again at once, with the same webhook-id.

        For a delivery that failed, for a cancelled one whose instance was not deleted, and for a pending one that
        would be tried later. A receiver that has handled it recognizes the webhook-id and skips it.

        :param delivery_id: The id of a delivery.
        """
        return self._requests.call(
            "POST",
            f"/api/v1/deliveries/{segment(delivery_id)}/retry/",
            DeliveryWithAttempts,
        )

    def get_delivery_push(
        self,
        delivery_id: str,
    ) -> DeliveryPush:
        """The request that an attempt of a delivery makes.

        Its headers and its body, for the latest attempt; if none was made, for the first. The address and the
        headers are those of the instance now. Values of webhook_headers are `[hidden]`, and the signature is
        `[signature]`. The response to each attempt is with the delivery.

        :param delivery_id: The id of a delivery.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/deliveries/{segment(delivery_id)}/push/",
            DeliveryPush,
        )

    def reencrypt(
        self,
    ) -> Reencryption:
        """Change the data key that encrypts stored secrets.

        Makes a new key and encrypts every secret again while the service runs; continues a change that was begun.
        Call it until `done` is true."""
        return self._requests.call(
            "POST",
            "/api/v1/encryption/reencrypt/",
            Reencryption,
        )

    def create_key(
        self,
        *,
        scopes: Sequence[Scope],
        name: str | None = None,
        meeting_ids: Sequence[str] | None = None,
        instance_id: str | None = None,
        expires_at: datetime | str | None = None,
    ) -> ApiKeyWithToken:
        """Make a key; only this response contains its token.

        While there is no key, everybody on this machine may make one, and it must be an admin key. From then on
        every request needs a key.

        :param scopes: The rights of the key.
        :param name: A name for people.
        :param meeting_ids: Limits sending, reading and joining to these meetings. At most 1000, of at most 40000
            bytes in all.
        :param instance_id: Limits the scope `instance` to this instance.
        :param expires_at: RFC 3339. From then on the key is refused; absent: never.
        """
        return self._requests.call(
            "POST",
            "/api/v1/keys/",
            ApiKeyWithToken,
            body=given(
                scopes=scopes,
                name=name,
                meeting_ids=meeting_ids,
                instance_id=instance_id,
                expires_at=expires_at,
            ),
        )

    def list_keys(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ApiKeyPage:
        """List the keys, revoked ones included, in the order in which they were made.

        Their tokens are not shown again.

        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            "/api/v1/keys/",
            ApiKeyPage,
            query=given(
                limit=limit,
                cursor=cursor,
            ),
        )

    def all_keys(
        self,
        *,
        limit: int | None = None,
    ) -> Iterator[ApiKey]:
        """Yields each item of `list_keys`, and asks for the next page when it is needed. `limit` is the size of a
        page."""
        cursor: str | None = None
        while True:
            page = self.list_keys(
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def get_key(
        self,
        key_id: str,
    ) -> ApiKey:
        """One key, without its token.

        Its scopes, its limits, and when it was last used.

        :param key_id: The id of an API key.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/keys/{segment(key_id)}/",
            ApiKey,
        )

    def revoke_key(
        self,
        key_id: str,
    ) -> None:
        """Revoke a key; it is refused from the response on.

        The instances that it owns stay. An admin can give them to another key with PATCH owner_key_id.

        :param key_id: The id of an API key.
        """
        self._requests.call(
            "DELETE",
            f"/api/v1/keys/{segment(key_id)}/",
            None,
        )

    def rotate_key(
        self,
        key_id: str,
        *,
        overlap_seconds: int | None = None,
    ) -> ApiKeyWithToken:
        """Make a new token for a key; until the overlap ends, the old one works too.

        The key keeps its id, its scopes and its limits. Only this response contains the new token. Earlier
        overlaps go on, unless the new overlap is 0.

        :param key_id: The id of an API key.
        :param overlap_seconds: How long the previous token still works, in seconds; a day when absent, 30 days at
            most.
        """
        return self._requests.call(
            "POST",
            f"/api/v1/keys/{segment(key_id)}/rotate/",
            ApiKeyWithToken,
            body=given(
                overlap_seconds=overlap_seconds,
            ),
        )

    def create_invite(
        self,
        *,
        meeting_ids: Sequence[str],
        agent_ids: Sequence[str],
        instance_id: str | None = None,
        expires_in_s: int | None = None,
    ) -> InviteWithLink:
        """Make a one-time link with which a machine joins meetings.

        The machine redeems the link with `convoke connect LINK`, or with `POST /api/v1/invites/redeem/`. It gets
        a key with the scope `instance`, limited to this instance and these meetings. Only this response contains
        the link.

        :param meeting_ids: The meetings that the machine may join. At most 100, of at most 8192 bytes in all.
        :param agent_ids: The agents that the machine is invited for. At most 1000, of at most 40000 bytes in all.
        :param instance_id: The instance that the machine registers; when absent, an id made of its first agent and
            a few random characters. An instance that exists belongs to the new key from then on.
        :param expires_in_s: How long the invite can be redeemed: a minute to a day; absent: an hour.
        """
        return self._requests.call(
            "POST",
            "/api/v1/invites/",
            InviteWithLink,
            body=given(
                meeting_ids=meeting_ids,
                agent_ids=agent_ids,
                instance_id=instance_id,
                expires_in_s=expires_in_s,
            ),
        )

    def list_invites(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> InvitePage:
        """List the invites, the latest first.

        The invites of the last 30 days, ended ones included. Their links are not shown again.

        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            "/api/v1/invites/",
            InvitePage,
            query=given(
                limit=limit,
                cursor=cursor,
            ),
        )

    def all_invites(
        self,
        *,
        limit: int | None = None,
    ) -> Iterator[Invite]:
        """Yields each item of `list_invites`, and asks for the next page when it is needed. `limit` is the size of a
        page."""
        cursor: str | None = None
        while True:
            page = self.list_invites(
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def revoke_invite(
        self,
        invite_id: str,
    ) -> None:
        """Revoke an invite; its link is refused from the response on.

        An invite that was redeemed cannot be revoked: revoke its key instead.

        :param invite_id: The id of an invite.
        """
        self._requests.call(
            "DELETE",
            f"/api/v1/invites/{segment(invite_id)}/",
            None,
        )

    def create_portal_link(
        self,
        key_id: str,
        *,
        instance_id: str | None = None,
        expires_in_s: int | None = None,
    ) -> PortalLink:
        """Make a link that shows the instances of a key, for an hour at most.

        Anybody with the link sees the instances of the key and their deliveries, tests webhooks, sends again what
        failed, and pauses. They neither read meetings nor take part in them, and change nothing that decides
        where pushes go or how they are signed. Pages of the origins in CONVOKE_PORTAL_ORIGINS may show the page
        in a frame. The link ends when that key or your own key is revoked, expires, or is rotated without an
        overlap.

        :param key_id: The id of an API key.
        :param instance_id: Shows only this instance of the key; absent: all of them.
        :param expires_in_s: How long the link can be used, in seconds; absent: an hour, which is also the most.
        """
        return self._requests.call(
            "POST",
            f"/api/v1/keys/{segment(key_id)}/portal-link/",
            PortalLink,
            body=given(
                instance_id=instance_id,
                expires_in_s=expires_in_s,
            ),
        )

    def list_audit(
        self,
        *,
        action: AuditAction | None = None,
        key_id: str | None = None,
        instance_id: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        order: Literal["newest", "oldest"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> AuditEntryPage:
        """Who changed what, from where and when.

        Every change, and every refused request for a change. Each entry has the hash of the previous one:
        docs/audit.md says how to verify them. With action, since or until, and with both key_id and instance_id,
        the service has to read entries, and one request reads a limited number. When it stops at that limit,
        `searched_to` says how far it came, and next_cursor continues there.

        :param action: The action that was done or refused.
        :param key_id: Who did it: a key_id, or open, local command, sign-in link, invite link, service, unknown.
        :param instance_id: Only changes of this instance.
        :param since: At or after this time.
        :param until: Before this time.
        :param order: Which entry comes first; newest when absent.
        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            "/api/v1/audit/",
            AuditEntryPage,
            query=given(
                action=action,
                key_id=key_id,
                instance_id=instance_id,
                since=since,
                until=until,
                order=order,
                limit=limit,
                cursor=cursor,
            ),
        )

    def all_audit(
        self,
        *,
        action: AuditAction | None = None,
        key_id: str | None = None,
        instance_id: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        order: Literal["newest", "oldest"] | None = None,
        limit: int | None = None,
    ) -> Iterator[AuditEntry]:
        """Yields each item of `list_audit`, and asks for the next page when it is needed. `limit` is the size of a
        page."""
        cursor: str | None = None
        while True:
            page = self.list_audit(
                action=action,
                key_id=key_id,
                instance_id=instance_id,
                since=since,
                until=until,
                order=order,
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def begin_backup(
        self,
    ) -> Backup:
        """Begin a copy of all data, while the service runs.

        The copy contains everything that was accepted before this call. Ask for it until it is complete."""
        return self._requests.call(
            "POST",
            "/api/v1/backups/",
            Backup,
        )

    def list_sessions(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> OpenSessionPage:
        """List the sessions of all pages, the latest first.

        Each session names the key with which it began; null for a sign-in link.

        :param limit: The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the
            response says whether there are more.
        :param cursor: next_cursor of the previous page; from the beginning when absent.
        """
        return self._requests.call(
            "GET",
            "/api/v1/sessions/",
            OpenSessionPage,
            query=given(
                limit=limit,
                cursor=cursor,
            ),
        )

    def all_sessions(
        self,
        *,
        limit: int | None = None,
    ) -> Iterator[OpenSession]:
        """Yields each item of `list_sessions`, and asks for the next page when it is needed. `limit` is the size of
        a page."""
        cursor: str | None = None
        while True:
            page = self.list_sessions(
                limit=limit,
                cursor=cursor,
            )
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def end_session(
        self,
        session_id: str,
    ) -> None:
        """End any session, and every live feed that it opened.

        It ends on every node within a second. The key with which it began stays valid: if it leaked, revoke or
        rotate it too.

        :param session_id: The id that ends a session.
        """
        self._requests.call(
            "DELETE",
            f"/api/v1/sessions/{segment(session_id)}/",
            None,
        )

    def list_nodes(
        self,
    ) -> ServiceNodeList:
        """The nodes that share the store, and how many partitions each holds.

        Instances fall into 64 partitions. The node that holds a partition delivers to its instances. Without
        PostgreSQL there is one node, which holds all partitions."""
        return self._requests.call(
            "GET",
            "/api/v1/nodes/",
            ServiceNodeList,
        )

    def get_counts(
        self,
    ) -> Counts:
        """How many instances are in each state, and how many deliveries are pending.

        Counts the rows that the lists of instances and deliveries would show to this key. A service with many
        instances counts again only after a while, so that counting takes at most 5 % of its time; `counted_at`
        says when it counted."""
        return self._requests.call(
            "GET",
            "/api/v1/counts/",
            Counts,
        )

    def get_history(
        self,
        *,
        span: Literal["5m", "1h", "24h"] | None = None,
        since: datetime | str | None = None,
    ) -> ServiceHistory:
        """The counts of the service in the last five minutes, hour, or day.

        Counts and latencies in steps, of all nodes together. They are kept in memory, and begin with the start of
        the node that responds: `counting_since`. Counts of another node belong to the second in which they arrive
        at this node.

        :param span: How far back: `5m` in steps of a second, `1h` in steps of 10 s, `24h` in minutes. `5m` when
            absent.
        :param since: Only steps that begin at this time or later. Give the `ends_at` of an earlier response to get
            only newer steps.
        """
        return self._requests.call(
            "GET",
            "/api/v1/history/",
            ServiceHistory,
            query=given(
                span=span,
                since=since,
            ),
        )

    def get_instance_history(
        self,
        instance_id: str,
    ) -> InstanceHistory:
        """The results of the pushes of an instance in the last day.

        Deliveries, failed attempts and latencies in steps of ten minutes, kept in memory for the 4,096 instances
        with the latest attempts. In a cluster, the counts of another node arrive after 10 s.

        :param instance_id: The id of an instance.
        """
        return self._requests.call(
            "GET",
            f"/api/v1/instances/{segment(instance_id)}/history/",
            InstanceHistory,
        )

    def get_demo(
        self,
    ) -> Demo:
        """Whether the demo runs.

        The state of the demo, and its meeting."""
        return self._requests.call(
            "GET",
            "/api/v1/demo/",
            Demo,
        )

    def start_demo(
        self,
    ) -> Demo:
        """Let two agents inside the service talk in a meeting.

        They are ordinary instances, on 127.0.0.1. They take 20 turns, one a second, and then answer the messages
        of others in the meeting. The demo ends with the service."""
        return self._requests.call(
            "POST",
            "/api/v1/demo/",
            Demo,
        )

    def stop_demo(
        self,
    ) -> None:
        """Stop the demo and remove its instances.

        The messages stay until their retention ends. Stopping the demo when it does not run is no error."""
        self._requests.call(
            "DELETE",
            "/api/v1/demo/",
            None,
        )

    def healthz(
        self,
    ) -> ServiceStatus:
        """Whether the process is alive.

        For a supervisor that restarts a process that hangs. It checks nothing else."""
        return self._requests.call(
            "GET",
            "/healthz",
            ServiceStatus,
        )

    def readyz(
        self,
    ) -> ServiceStatus:
        """Whether messages can be accepted.

        For a load balancer: 503 while the store does not respond, or while the service shuts down."""
        return self._requests.call(
            "GET",
            "/readyz",
            ServiceStatus,
        )

    def metrics(
        self,
    ) -> str:
        """Metrics as Prometheus text.

        For Prometheus. docs/alerts.md says what each of them means."""
        return self._requests.call(
            "GET",
            "/metrics",
            str,
        )
