# Written from the OpenAPI document by `npm run generate`: change the schemas in src/http/schemas/ instead.
"""What Convoke responds. Times are aware `datetime`s; where a field has a set of words, a newer service may return others."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import Field

from convoke_agents.model import JsonObject, Model

__all__ = [
    "ApiKey",
    "ApiKeyPage",
    "ApiKeyWithToken",
    "Attempt",
    "AuditAction",
    "AuditEntry",
    "AuditEntryPage",
    "Backup",
    "BackupProgress",
    "Connection",
    "Counts",
    "Delivery",
    "DeliveryCounts",
    "DeliveryPage",
    "DeliveryPush",
    "DeliveryReason",
    "DeliveryState",
    "DeliveryWithAttempts",
    "Demo",
    "Diagnosis",
    "DiagnosisStage",
    "DroppedDeliveries",
    "Explanation",
    "ExplanationPage",
    "FieldError",
    "FoundMessage",
    "FoundMessagePage",
    "GuardLimits",
    "Health",
    "Instance",
    "InstanceCounts",
    "InstanceHistory",
    "InstancePage",
    "Invite",
    "InvitePage",
    "InviteWithLink",
    "JsonObject",
    "LastFailure",
    "LeftMeeting",
    "Meeting",
    "MeetingInstance",
    "MeetingInstancePage",
    "MeetingPage",
    "Membership",
    "Message",
    "MessageBrief",
    "MessagePage",
    "MessageTrace",
    "MissedMessages",
    "OpenSession",
    "OpenSessionPage",
    "Outcome",
    "PortalLink",
    "Problem",
    "Pulled",
    "PulledPush",
    "Recovered",
    "RedeemedInvite",
    "Reencryption",
    "RegisteredInstance",
    "RotatedSecret",
    "Runtime",
    "Scope",
    "SendResult",
    "SentMessage",
    "SentMessages",
    "ServiceHistory",
    "ServiceNode",
    "ServiceNodeList",
    "ServiceStatus",
    "Session",
    "SuccessStatuses",
    "TakenResult",
    "Transport",
    "WaitingFor",
    "WhyNotNow",
]

Scope: TypeAlias = Literal["admin", "send", "read", "instance"]
"""`admin`: everything; `send`: send messages; `read`: look at everything; `instance`: register instances, do
everything with its own, and speak for their agents."""


class ApiKey(Model):
    """A key, without its token."""

    key_id: str
    """The id of an API key: the 12 characters after cvk_ in its token."""
    name: str | None
    """A name for people."""
    scopes: list[Scope | str]
    """The rights of the key."""
    meeting_ids: list[str] | None
    """Limits sending, reading and joining to these meetings; null: no limit."""
    instance_id: str | None
    """Limits the scope `instance` to this instance; null: no limit."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime | None
    """When it expires: from then on it is refused. Null: never."""
    revoked_at: datetime | None
    """When it was revoked; null: it was not."""
    last_used_at: datetime | None
    """When it was last used, to the minute."""
    previous_token_expires_at: datetime | None
    """Until then the token before the last rotation is accepted too."""
    earlier_tokens_expire_at: list[datetime] | None = None
    """Until then the tokens of earlier rotations are accepted too, the newest first: a rotation does not shorten the
    overlap of another. Absent when there are none."""


class ApiKeyPage(Model):
    """One page of a list."""

    data: list[ApiKey]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""


class ApiKeyWithToken(Model):
    """A key with its token, which only the response that makes it contains."""

    key_id: str
    """The id of an API key: the 12 characters after cvk_ in its token."""
    name: str | None
    """A name for people."""
    scopes: list[Scope | str]
    """The rights of the key."""
    meeting_ids: list[str] | None
    """Limits sending, reading and joining to these meetings; null: no limit."""
    instance_id: str | None
    """Limits the scope `instance` to this instance; null: no limit."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime | None
    """When it expires: from then on it is refused. Null: never."""
    revoked_at: datetime | None
    """When it was revoked; null: it was not."""
    last_used_at: datetime | None
    """When it was last used, to the minute."""
    previous_token_expires_at: datetime | None
    """Until then the token before the last rotation is accepted too."""
    earlier_tokens_expire_at: list[datetime] | None = None
    """Until then the tokens of earlier rotations are accepted too, the newest first: a rotation does not shorten the
    overlap of another. Absent when there are none."""
    token: str = Field(repr=False)
    """Sent as `authorization: Bearer`. It is not shown again."""


Outcome: TypeAlias = Literal["blocked", "dns_failed", "connect_refused", "connect_timeout", "unreachable", "tls_failed", "timeout", "broken_response", "bad_status", "gone", "not_200", "ok"]
"""How an attempt ended, in the order of its stages. With `tls_failed` and each value before it, the receiver was not
reached."""


class Attempt(Model):
    """One HTTP POST made for a delivery."""

    attempt: int
    """The number of the attempt, from 1."""
    started_at: datetime
    """When it began."""
    duration_ms: float
    """How long it took."""
    outcome: Outcome | str
    status_code: int | None
    """The status of the response; null when no status line arrived."""
    detail: str
    """The failure, in words. Empty after a success, unless a reply in the response could not be sent: then it says
    why."""
    response_excerpt: str
    """The beginning of the response body."""
    answered_agents: list[str] | None = None
    """Only for an instance with a runtime: the agents that have answered, in this attempt or earlier. A retry asks
    the others."""


AuditAction: TypeAlias = Literal["instance.register", "instance.update", "instance.hand_over", "instance.delete", "instance.rotate_secret", "instance.recover", "instance.webhook_test", "meeting.join", "meeting.leave", "membership.update", "meeting.update", "delivery.retry", "delivery.drop", "key.create", "key.rotate", "key.revoke", "portal_link.create", "invite.create", "invite.redeem", "invite.revoke", "session.begin", "session.end", "encryption.reencrypt", "authenticate", "service.start", "service.backup", "service.import", "audit.prune", "demo.start", "demo.stop"]
"""The action that was done or refused."""


class AuditEntry(Model):
    """Who did what to what, from where and when."""

    seq: int
    """From 1, without gaps."""
    at: datetime
    """When it was done or refused."""
    principal: str
    """Who did it: a key_id, or open (no key is needed yet), local command (on the data file), sign-in link (printed
    by convoke serve), invite link, service, unknown (no right key)."""
    address: str | None
    """The address of the client; the /64 of an anonymous IPv6 client. Null for a local command."""
    action: AuditAction | str
    target_kind: Literal["instance", "meeting", "delivery", "key", "invite", "session", "service"] | str
    """The kind of the target."""
    target_id: str | None
    """The id of the target; null when the request named none."""
    outcome: Literal["done", "refused"] | str
    """Whether it was done."""
    code: str | None
    """Why it was refused: the code of the problem; null when it was done."""
    details: dict[str, str | float | bool | list[str] | None]
    """The names of the given fields and similar facts. Never a secret."""
    prev_hash: str
    """The hash of the previous entry; 64 zeros in the first one."""
    hash: str
    """SHA-256 over prev_hash, a line feed, and the other fields as canonical JSON."""


class AuditEntryPage(Model):
    """One page of a search."""

    data: list[AuditEntry]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""
    searched_to: datetime | None = None
    """Present when the search stopped before the page was full, because a request reads only so many rows: the
    search came to this time. The page may be empty; next_cursor continues."""


class Backup(Model):
    """A copy of all data that is being made."""

    backup_id: str
    """The id of the copy."""


class BackupProgress(Model):
    """The progress of a copy."""

    pages_total: int
    """Pages of the data file; 0 while nothing is copied."""
    pages_left: int
    """Pages that are not copied yet."""


class Connection(Model):
    """A machine that pulls."""

    since: datetime
    """Since when it pulls without a pause of more than 10 s."""
    address: str | None
    """The address of its latest pull."""
    client: str | None
    """Its program and version, from the header user-agent."""


class InstanceCounts(Model):
    """How many instances are in each state. Each is in one."""

    up: int
    """Switched on, and the last attempt succeeded."""
    failing: int
    """Switched on, and the last one to four attempts failed."""
    down: int
    """Switched on, and the last five attempts or more failed."""
    unknown: int
    """Switched on, and no attempt was made yet."""
    off: int
    """Switched off: `is_active` or `webhook_enabled` is false."""
    connected: int
    """Instances whose machine pulls. They are also counted in one of the states above."""


class DeliveryCounts(Model):
    """How many deliveries wait."""

    pending: int
    """Deliveries that have not ended."""
    oldest_pending_at: datetime | None
    """Null when none is pending."""


class Counts(Model):
    """The counts of the rows that the key may see."""

    counted_at: datetime
    """When the count began. A count that took long is kept for a while, so it may be older than the request."""
    instances: InstanceCounts
    deliveries: DeliveryCounts


DeliveryState: TypeAlias = Literal["pending", "delivered", "failed", "cancelled"]
"""The state of a delivery. Every state but `pending` is final."""


DeliveryReason: TypeAlias = Literal["not_200", "gone", "exhausted", "expired", "instance_deleted", "dropped", "hop_limit", "pair_limit", "superseded", "max_age"]
"""Why a delivery failed or was cancelled. `not_200`: a 2xx that does not count; `gone`: 410; `exhausted`: too many
bad responses; `expired`: not reached for too long; `instance_deleted`: its instance was deleted; `dropped`:
somebody dropped the waiting deliveries; `hop_limit`, `pair_limit`: the loop guard stopped agents that answer each
other; `superseded`, `max_age`: it waited while its machine was away, and was not the newest message, or was too
old."""


WaitingFor: TypeAlias = Literal["turn", "retry", "back_off", "paused", "switched_off", "connection"]
"""Why a pending delivery waits. It waits for its `turn` in the lane or for the response to its attempt (`turn`), the
time of its next attempt (`retry`), the `back_off` of its instance, a meeting that is `paused`, an instance that
is `switched_off`, or the `connection` of a machine that pulls."""


class Delivery(Model):
    """One message on its way to one instance."""

    delivery_id: str
    """The id of the delivery, and the webhook-id of every attempt."""
    message_id: str
    """The message that it delivers."""
    meeting_id: str
    """The id of a meeting."""
    seq: int
    """The number of the message in its meeting."""
    instance_id: str
    """The id of an instance."""
    target_agents: list[str]
    """The agents of the instance to notify."""
    state: DeliveryState | str
    reason: DeliveryReason | str | None
    """Why it failed or was cancelled; null otherwise."""
    waiting_for: WaitingFor | str | None
    """Why a pending delivery is not delivered yet; null once it is settled."""
    attempt_count: int
    """How many attempts were made."""
    next_attempt_at: datetime | None
    """The earliest time of the next attempt; null unless the delivery is pending and retried."""
    created_at: datetime
    """When the message was accepted."""
    settled_at: datetime | None
    """When it left `pending`."""
    last_attempt: Attempt | None
    """The latest attempt; null before the first."""


class DeliveryPage(Model):
    """One page of a search."""

    data: list[Delivery]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""
    searched_to: datetime | None = None
    """Present when the search stopped before the page was full, because a request reads only so many rows: the
    search came to this time. The page may be empty; next_cursor continues."""


class DeliveryPush(Model):
    """The request that an attempt of a delivery makes, without its secrets."""

    delivery_id: str
    """The id of the delivery, and the webhook-id of every attempt."""
    url: str | None
    """The webhook_url of the instance as it is now. Null when it has none, is gone, or is not shown to this key."""
    runtime: Literal["spec", "openai", "openclaw", "hermes", "template", "a2a", "langgraph", "dify", "mcp_events"] | str | None
    """The runtime of the instance, which gets this push in a shape of its own. Null: the instance gets the push as
    it is here."""
    headers: dict[str, str]
    """The headers by their names. `[hidden]` stands for a value of webhook_headers, `[signature]` for the signature.
    Attempts differ in convoke-attempt, webhook-timestamp and webhook-signature only. The headers of the trace,
    those for replies, and convoke-missed are left out."""
    body: str
    """The body: JSON, with the message as its sender wrote it."""


class DeliveryWithAttempts(Model):
    """A delivery, with its attempts."""

    delivery_id: str
    """The id of the delivery, and the webhook-id of every attempt."""
    message_id: str
    """The message that it delivers."""
    meeting_id: str
    """The id of a meeting."""
    seq: int
    """The number of the message in its meeting."""
    instance_id: str
    """The id of an instance."""
    target_agents: list[str]
    """The agents of the instance to notify."""
    state: DeliveryState | str
    reason: DeliveryReason | str | None
    """Why it failed or was cancelled; null otherwise."""
    waiting_for: WaitingFor | str | None
    """Why a pending delivery is not delivered yet; null once it is settled."""
    attempt_count: int
    """How many attempts were made."""
    next_attempt_at: datetime | None
    """The earliest time of the next attempt; null unless the delivery is pending and retried."""
    created_at: datetime
    """When the message was accepted."""
    settled_at: datetime | None
    """When it left `pending`."""
    last_attempt: Attempt | None
    """The latest attempt; null before the first."""
    attempts: list[Attempt]
    """The attempts that were made: the first ten and the latest ninety."""


class Demo(Model):
    """Two agents inside the service that talk in a meeting."""

    state: Literal["stopped", "talking", "listening"] | str
    """`talking`: the agents take their turns; `listening`: they answer what others say."""
    meeting_id: str | None
    """The meeting that they talk in; null while it is stopped."""
    instance_ids: list[str]
    """Their instances."""
    turns: int
    """How many turns were taken, of 20."""


class DiagnosisStage(Model):
    """One stage of a webhook test."""

    stage: Literal["dns", "connect", "tls", "request", "response"] | str
    """Which stage it is."""
    ok: bool
    """Whether it succeeded."""
    duration_ms: float
    """How long it took."""
    detail: str
    """The result, in words."""


class Diagnosis(Model):
    """The result of a webhook test, stage by stage."""

    success: bool
    """Whether a delivery with this response would count as delivered."""
    status_code: int | None
    """The status of the response; null when no status line arrived."""
    outcome: Outcome | str
    duration_ms: float
    """How long all of it took."""
    stages: list[DiagnosisStage]
    """The result of each stage that was reached."""
    response_excerpt: str
    """The beginning of the response body."""
    advice: str
    """One sentence that says what to do."""


class DroppedDeliveries(Model):
    """How many pending deliveries were dropped."""

    deliveries: int
    """How many were dropped, or would be."""
    up_to: str | None
    """The last message whose deliveries are dropped: when `done` is false, the next call gives it as `up_to`. Null
    while no message is stored."""
    dry_run: bool
    """Whether they were only counted."""
    done: bool
    """False when more may be left: call again, with this `up_to`."""
    at_least: bool | None = None
    """Only with dry_run: true when there are more than 100000."""


WhyNotNow: TypeAlias = Literal["left", "inactive", "switched_off", "nobody_named", "is_sender", "wake", "hop_limit", "pair_limit", "paused", "connection", "back_off"]
"""Why a message would not be pushed: the instance has `left`, it is `inactive`, its webhook is `switched_off`, the
message is for none of its agents (`nobody_named`), its only agent says it (`is_sender`), it does not `wake` this
membership, or the loop guard would stop it (`hop_limit`, `pair_limit`). Or why it would be pushed later: the
meeting is `paused`, the machine does not pull (`connection`), the instance backs off (`back_off`)."""


class Explanation(Model):
    """The prediction for a message that is sent now, for one instance of a meeting."""

    instance_id: str
    """The id of an instance."""
    instance_name: str
    """The name that people see."""
    agent_ids: list[str]
    """Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all."""
    wake: Literal["all", "targeted", "people"] | str | None = None
    """Which messages for these agents are pushed; absent: all."""
    pushed: Literal["now", "later", "no"] | str
    """Whether it would be pushed: `now`, after the deliveries that already wait in its lane; `later`; or `no`."""
    why: WhyNotNow | str | None
    """Why it would not be pushed now; null when it would."""
    target_agents: list[str]
    """The agents to notify; empty when there would be no delivery."""
    may_become: list[Literal["superseded", "max_age", "pair_limit", "pushed"] | str] | None = None
    """What else may become of the message, because of the rules of the membership. If the message has to wait, a
    newer message may arrive before the machine is back (`superseded`), or the message may become too old
    (`max_age`). When other messages wait before this one, the loop guard may stop it if they are pushed
    (`pair_limit`), or let it through if the rules cancel them (`pushed`). Absent when none of these can happen."""


class ExplanationPage(Model):
    """One page of a list."""

    data: list[Explanation]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""


class FieldError(Model):
    """One field that is not valid."""

    path: str
    """The field, dotted: `agent_ids.3`; empty for the body as a whole."""
    message: str
    """What the value must be."""


class FoundMessage(Model):
    """A message with its meeting."""

    message_id: str
    """The id of a message."""
    seq: int
    """The number of the message in its meeting, from 1."""
    accepted_at: datetime
    """When it was stored."""
    deliveries_queued: int
    """How many instances get it. Their deliveries are removed sooner than the message."""
    target_agents: list[str] | None
    """The agents that it is for; null: all agents of the meeting."""
    from_agent: str | None = None
    """The agent that says it; absent: a person, or a program that is no agent."""
    in_reply_to: str | None = None
    """The message_id that it answers; absent: the sender named none. That message may be gone."""
    hops: int | None = None
    """How many messages of agents in a row led to it, itself included; 0 for a person. Absent when it has neither
    from_agent nor in_reply_to."""
    message: JsonObject
    meeting_id: str
    """The id of a meeting."""


class FoundMessagePage(Model):
    """One page of a search."""

    data: list[FoundMessage]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""
    searched_to: datetime | None = None
    """Present when the search stopped before the page was full, because a request reads only so many rows: the
    search came to this time. The page may be empty; next_cursor continues."""


class GuardLimits(Model):
    """The limits of the loop guard that are in force."""

    hop_limit: int
    """Messages of agents that answer each other, in a row; 0: any number."""
    pair_limit: int
    """Messages from one agent to one other in the window; 0: any number."""
    pair_window_s: int
    """The window, in seconds; 0: no limit of pairs."""


Health: TypeAlias = Literal["unknown", "up", "failing", "down"]
"""`unknown`: nothing was tried yet; `up`: the last attempt succeeded; `failing`: 1 to 4 failures in a row; `down`: 5
or more."""


Transport: TypeAlias = Literal["webhook", "pull"]
"""How pushes reach the machine. `webhook`: they are sent to webhook_url. `pull`: the machine asks for them, so
nobody needs a connection to it."""


Runtime: TypeAlias = Literal["spec", "openai", "openclaw", "hermes", "template", "a2a", "langgraph", "dify", "mcp_events"]
"""The runtime at webhook_url, if its pushes have a shape of their own. `spec`, the default, is the body of the
specification. `convoke runtimes` describes each."""


SuccessStatuses: TypeAlias = Literal["200", "2xx"]
"""Which responses to a push count as a success: only 200 (the default), or every 2xx."""


class LastFailure(Model):
    """The last attempt that failed."""

    at: datetime
    """When the attempt ended."""
    outcome: Outcome | str
    status_code: int | None
    """The status of the response; null when no status line arrived."""
    detail: str
    """The result, in words."""
    response_excerpt: str | None = None
    """The first 300 characters of the response body. Absent when there was none, and for a key that may not see
    every delivery of the instance."""
    advice: str
    """One sentence that says what to do."""


class Instance(Model):
    """One machine that runs an agent runtime."""

    instance_id: str
    """The id of an instance."""
    instance_name: str
    """The name that people see."""
    agent_ids: list[str]
    """Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all."""
    transport: Transport | str | None = None
    ack_timeout_s: int | None = None
    """How long a machine that pulls has for the result of a push, in seconds; 30 unless it was set, 600 at most. A
    webhook has timeout_s instead."""
    timeout_s: int | None = None
    """How long an attempt at webhook_url may take, in seconds. The default is 5, or the time that the runtime needs;
    a registration that ends the runtime and gives no timeout_s also ends its timeout. With more than 5, an
    attempt that a stop of the service interrupts is made again."""
    runtime: Runtime | str | None = None
    runtime_option_names: list[str] | None = None
    """Only with a runtime: the names of its options; no response contains their values."""
    lease_until: datetime | None = None
    """Only for a subscription of MCP Events: when it is removed unless it is renewed before."""
    connected: Connection | None = None
    """Only with the transport `pull`: the machine that pulls; null when none does."""
    webhook_url: str
    """Where pushes are sent; shown and not used when transport is `pull`, and empty when none was given."""
    webhook_enabled: bool
    """Whether pushes are sent; false after a response of 410."""
    is_active: bool
    """Whether the instance takes part at all."""
    success_statuses: SuccessStatuses | str
    replies: bool | None = None
    """True when its replies to pushes are sent in the meeting; absent otherwise."""
    webhook_header_names: list[str]
    """The names of the headers sent with every push; no response contains their values."""
    health: Health | str
    consecutive_failures: int
    """Failed attempts since the last success."""
    health_since: datetime | None = None
    """When its health last changed; absent when that is unknown."""
    next_try_at: datetime | None = None
    """Only while it backs off: when the next attempt is made, if a delivery waits then. A past time means: as soon
    as a delivery waits."""
    last_success_at: datetime | None
    """When a push last succeeded, up to a second late; null before the first."""
    last_failure: LastFailure | None
    """The last attempt that failed; null when none did."""
    pending_deliveries: int
    """Deliveries that are not settled yet."""
    owner_key_id: str | None
    """The key that owns it. Null when it was registered without keys; then only admins may change it."""
    last_seen_at: datetime | None
    """The last registration or heartbeat."""
    created_at: datetime
    """When it was first registered."""
    updated_at: datetime
    """When a field of the registration last changed."""


class InstanceHistory(Model):
    """The results of the pushes of an instance in the last day, column by column."""

    counting_since: datetime
    """Since when the attempts of this instance are counted. Earlier ones are unknown, or belong to another instance
    with this id."""
    starts_at: datetime
    """When the first step began."""
    ends_at: datetime
    """When the last step ends. It is the present one."""
    step_s: int
    """The length of a step in seconds."""
    delivered: list[int]
    """Deliveries that succeeded in each step, the oldest step first."""
    failed_attempts: list[int]
    """Attempts that failed; most are followed by another attempt."""
    failed: list[int]
    """Deliveries that failed by an attempt: no further attempt is made."""
    p50_ms: list[int | None]
    """The median of the time from the acceptance of a message to its delivery, in milliseconds. It is off by at most
    an eighth. Null for a step in which nothing was delivered."""
    p95_ms: list[int | None]
    """The same; 95 % of the deliveries took no longer."""


class InstancePage(Model):
    """One page of a list."""

    data: list[Instance]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""
    searched_to: str | None = None
    """Present when the search stopped before the page was full, because a request reads only so many rows: the
    search came to this id. The page may be empty; next_cursor continues."""


class Invite(Model):
    """A one-time link, without its secret."""

    invite_id: str
    """The id of an invite. It is no secret: nobody can redeem an invite with it."""
    state: Literal["pending", "redeemed", "revoked", "expired"] | str
    """`pending`: it can be redeemed; otherwise why it cannot: `redeemed`, `revoked` or `expired`."""
    instance_id: str
    """The instance that the machine registers."""
    meeting_ids: list[str]
    """The meetings that the machine may join."""
    agent_ids: list[str]
    """The agents that the machine is invited for."""
    created_by: str | None
    """The key that made it; null without a key."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime
    """When it expires: from then on it cannot be redeemed."""
    redeemed_at: datetime | None
    """When it was redeemed; null: it was not."""
    key_id: str | None
    """The key that was made when it was redeemed; null before that, and where no key was needed."""
    revoked_at: datetime | None
    """When it was revoked; null: it was not."""


class InvitePage(Model):
    """One page of a list."""

    data: list[Invite]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""


class InviteWithLink(Model):
    """An invite with its link, which only the response that makes it contains."""

    invite_id: str
    """The id of an invite. It is no secret: nobody can redeem an invite with it."""
    state: Literal["pending", "redeemed", "revoked", "expired"] | str
    """`pending`: it can be redeemed; otherwise why it cannot: `redeemed`, `revoked` or `expired`."""
    instance_id: str
    """The instance that the machine registers."""
    meeting_ids: list[str]
    """The meetings that the machine may join."""
    agent_ids: list[str]
    """The agents that the machine is invited for."""
    created_by: str | None
    """The key that made it; null without a key."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime
    """When it expires: from then on it cannot be redeemed."""
    redeemed_at: datetime | None
    """When it was redeemed; null: it was not."""
    key_id: str | None
    """The key that was made when it was redeemed; null before that, and where no key was needed."""
    revoked_at: datetime | None
    """When it was revoked; null: it was not."""
    link: str = Field(repr=False)
    """The link redeems the invite once, and is not shown again. It begins with the setting public_url, or else with
    the address of this request."""
    is_public_url: bool
    """Whether the link begins with the setting public_url. Otherwise it begins with the address of this request as
    the service saw it, which a proxy may have changed."""


class LeftMeeting(Model):
    """The result of leaving a meeting."""

    instance_id: str
    """The id of an instance."""
    meeting_id: str
    """The id of a meeting."""
    left_at: datetime | None
    """When it left; null when there was nothing to leave."""


class Meeting(Model):
    """A conversation. It exists as soon as an instance joins it or a message is sent in it."""

    meeting_id: str
    """The id of a meeting."""
    last_seq: int
    """How many messages were ever sent in it."""
    instance_count: int
    """Instances in the meeting now."""
    agent_count: int
    """Agents in the meeting now, over all instances."""
    pending_deliveries: int
    """Deliveries of its messages that are not settled yet."""
    paused: bool
    """Whether its deliveries wait until somebody resumes it."""
    hop_limit: int | None
    """The limit of messages in a row, as it was set for this meeting; null: it was not."""
    pair_limit: int | None
    """The limit of messages from one agent to one other, as it was set for this meeting; null: it was not."""
    pair_window_s: int | None
    """The window of pair_limit in seconds, as it was set for this meeting; null: it was not."""
    limits: GuardLimits
    created_at: datetime
    """The first join or message."""
    last_activity_at: datetime
    """The last join, leave or message."""


class MeetingInstance(Model):
    """A membership, with the name of its instance and its health."""

    meeting_id: str
    """The id of a meeting."""
    instance_id: str
    """The id of an instance."""
    agent_ids: list[str]
    """Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all."""
    joined_at: datetime
    """When the instance last joined."""
    left_at: datetime | None
    """When it left; null while the instance is in the meeting."""
    wake: Literal["all", "targeted", "people"] | str | None = None
    """Which messages for these agents are pushed; absent: all."""
    catch_up: Literal["all", "latest"] | str | None = None
    """Which of the messages that waited while the machine was away are pushed; absent: all."""
    max_age_s: int | None = None
    """How old a message may be when it would be pushed next, in seconds; absent: any age."""
    instance_name: str
    """The name that people see."""
    health: Health | str


class MeetingInstancePage(Model):
    """One page of a list."""

    data: list[MeetingInstance]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""


class MeetingPage(Model):
    """One page of a list."""

    data: list[Meeting]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""
    searched_to: str | None = None
    """Present when the search stopped before the page was full, because a request reads only so many rows: the
    search came to this id. The page may be empty; next_cursor continues."""


class Membership(Model):
    """An instance in a meeting, with the agents that take part."""

    meeting_id: str
    """The id of a meeting."""
    instance_id: str
    """The id of an instance."""
    agent_ids: list[str]
    """Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all."""
    joined_at: datetime
    """When the instance last joined."""
    left_at: datetime | None
    """When it left; null while the instance is in the meeting."""
    wake: Literal["all", "targeted", "people"] | str | None = None
    """Which messages for these agents are pushed; absent: all."""
    catch_up: Literal["all", "latest"] | str | None = None
    """Which of the messages that waited while the machine was away are pushed; absent: all."""
    max_age_s: int | None = None
    """How old a message may be when it would be pushed next, in seconds; absent: any age."""


class Message(Model):
    """A message in the history of a meeting, exactly as it was written. A JSON parser that reads numbers as doubles
    drops digits of long numbers."""

    message_id: str
    """The id of a message."""
    seq: int
    """The number of the message in its meeting, from 1."""
    accepted_at: datetime
    """When it was stored."""
    deliveries_queued: int
    """How many instances get it. Their deliveries are removed sooner than the message."""
    target_agents: list[str] | None
    """The agents that it is for; null: all agents of the meeting."""
    from_agent: str | None = None
    """The agent that says it; absent: a person, or a program that is no agent."""
    in_reply_to: str | None = None
    """The message_id that it answers; absent: the sender named none. That message may be gone."""
    hops: int | None = None
    """How many messages of agents in a row led to it, itself included; 0 for a person. Absent when it has neither
    from_agent nor in_reply_to."""
    message: JsonObject


class MessageBrief(Model):
    """A message of a thread, with the beginning of its text."""

    message_id: str
    """The id of a message."""
    seq: int
    """The number of the message in its meeting, from 1."""
    accepted_at: datetime
    """When it was stored."""
    from_agent: str | None = None
    """The agent that says it; absent: a person, or a program that is no agent."""
    in_reply_to: str | None = None
    """The message_id that it answers; absent: the sender named none. That message may be gone."""
    hops: int | None = None
    """How many messages of agents in a row led to it, itself included; 0 for a person. Absent when it has neither
    from_agent nor in_reply_to."""
    excerpt: str
    """The first 200 characters of its JSON text."""


class MessagePage(Model):
    """Consecutive messages."""

    data: list[Message]
    """In the order of seq."""
    has_more: bool
    """Whether there are more in the requested direction."""


class MessageTrace(Model):
    """A message, the chain that led to it, its answers, and each of its deliveries."""

    message_id: str
    """The id of a message."""
    seq: int
    """The number of the message in its meeting, from 1."""
    accepted_at: datetime
    """When it was stored."""
    deliveries_queued: int
    """How many instances get it. Their deliveries are removed sooner than the message."""
    target_agents: list[str] | None
    """The agents that it is for; null: all agents of the meeting."""
    from_agent: str | None = None
    """The agent that says it; absent: a person, or a program that is no agent."""
    in_reply_to: str | None = None
    """The message_id that it answers; absent: the sender named none. That message may be gone."""
    hops: int | None = None
    """How many messages of agents in a row led to it, itself included; 0 for a person. Absent when it has neither
    from_agent nor in_reply_to."""
    message: JsonObject
    meeting_id: str
    """The id of a meeting."""
    trace_id: str | None = None
    """The trace that it belongs to, as in its traceparent: docs/traces.md; absent when there is none."""
    answered: list[MessageBrief]
    """The messages that led to this one, at most 50. The first is the message that this one answers; each further
    one is answered by the one before it."""
    answers: list[MessageBrief]
    """Its answers among the next 1,000 messages of its meeting, in the order of seq."""
    next_answers_after: int | None
    """Give it as answers_after to look for answers in the messages that follow; null when there are none."""
    deliveries: list[Delivery]
    """Its deliveries, newest first."""
    deliveries_cursor: str | None
    """Give it as cursor when you list the deliveries of this message, to get the others; null when there are none."""


class MissedMessages(Model):
    """Messages of that period for the agents that the instance has in its meetings now, without a delivery: it was
    switched off when they were sent. They are in the history of their meetings, and are not pushed later."""

    messages: int
    """How many messages."""
    at_least: bool
    """True when there may be more: not all messages were read."""


class OpenSession(Model):
    """Somebody is signed in on a page."""

    session_id: str
    """The id with which the session can be ended; it cannot be used to sign in."""
    key_id: str | None
    """The key with which somebody signed in; null for a link of convoke serve."""
    created_at: datetime
    """When somebody signed in."""
    expires_at: datetime
    """When it ends by itself."""
    is_current: bool
    """Whether this request uses it."""


class OpenSessionPage(Model):
    """One page of a list."""

    data: list[OpenSession]
    """The items of this page."""
    next_cursor: str | None
    """Give it as cursor to get the next page; null on the last one."""


class PortalLink(Model):
    """A link to the instances of a key."""

    link: str = Field(repr=False)
    """Show it to the owner of the key only: anybody with the link may use it until it expires."""
    expires_at: datetime
    """From then on it is refused."""


class Problem(Model):
    """An error: RFC 9457, application/problem+json."""

    type: str
    """`urn:convoke:problem:` and the code."""
    title: str
    """The meaning of the code."""
    status: int
    """The status of the response."""
    detail: str
    """What went wrong in this case, and what to do."""
    code: str
    """Stable: branch on this, and not on the text. docs/errors.md lists the codes."""
    errors: list[FieldError] | None = None
    """The fields that are not valid."""


class PulledPush(Model):
    """A push for a machine that pulls. The attempt begins when it is handed out."""

    delivery_id: str
    """The delivery; the same as webhook-id. Skip a push that you have handled."""
    attempt: int
    """The number of the attempt, from 1."""
    headers: dict[str, str]
    """The headers that a webhook would get, with the signature over the body. Their names are in lower case."""
    body: str
    """The text that a webhook would get: verify the signature over its UTF-8 bytes."""
    deadline_at: datetime
    """When a result is too late: the attempt has then failed as `timeout`, and is made again."""


class TakenResult(Model):
    """Whether a result counted."""

    delivery_id: str
    """The delivery."""
    attempt: int
    """The number of the attempt."""
    became: Literal["counted", "late", "repeated", "unknown"] | str
    """`counted`: it was judged like the response of a webhook. The others have no effect. `late`: its deadline had
    passed. `repeated`: the attempt had a result already. `unknown`: this instance did not get such an attempt, or
    the node that handed it out has stopped; then the push is handed out again."""
    state: Literal["pending", "delivered", "failed", "cancelled"] | str | None
    """The state of the delivery when the result was not `counted`; null when it was, and when there is no such
    delivery of this instance."""


class Pulled(Model):
    """What a pull brought."""

    pushes: list[PulledPush]
    """The next push of each meeting, in order, and at most one push that went aside: its delivery got three bad
    responses, or was queued again. So two pushes may be of one meeting. Empty when the time was up, or when the
    node stops: pull again."""
    results: list[TakenResult]
    """Whether each result counted, in the order of the request."""


class Recovered(Model):
    """The result of a recovery, or of a call of it that does a part."""

    recovered: int
    """How many deliveries were queued again, or would be."""
    until: datetime | None
    """The end of the period: when `done` is false, the next call gives it as `until`. Null with delivery_ids."""
    dry_run: bool
    """Whether they were only counted."""
    done: bool
    """False when more may be left: call again, with this `until`."""
    at_least: bool | None = None
    """Only with dry_run: true when there are more than 100000."""
    missed: MissedMessages | None = None


class RedeemedInvite(Model):
    """What a machine needs to register, to join its meetings and to pull."""

    invite_id: str
    """The id of an invite. It is no secret: nobody can redeem an invite with it."""
    instance_id: str
    """The instance that the machine registers."""
    meeting_ids: list[str]
    """The meetings that the machine may join."""
    agent_ids: list[str]
    """The agents that the machine is invited for."""
    api_key: str | None = Field(repr=False)
    """Sent as `authorization: Bearer`. It is not shown again. Null while no key was made and none is needed."""


class Reencryption(Model):
    """The result of one step of changing the data key."""

    key_id: str
    """The data key that encrypts secrets from now on."""
    rewritten: int
    """Instances whose secrets this call encrypted again."""
    unreadable: list[str]
    """Instances whose secrets no data key decrypts, because their rows are damaged: at most 100. The previous data
    key is kept while there are any. Register each with a new `webhook_secret` and all `webhook_headers`, or
    delete it; then call again."""
    done: bool
    """Whether every other secret is under the new key. While false, call again."""


class RegisteredInstance(Model):
    """An instance, and its secret when the registration made one."""

    instance_id: str
    """The id of an instance."""
    instance_name: str
    """The name that people see."""
    agent_ids: list[str]
    """Agent ids; duplicates are dropped, order is kept. At most 1000, of at most 40000 bytes in all."""
    transport: Transport | str | None = None
    ack_timeout_s: int | None = None
    """How long a machine that pulls has for the result of a push, in seconds; 30 unless it was set, 600 at most. A
    webhook has timeout_s instead."""
    timeout_s: int | None = None
    """How long an attempt at webhook_url may take, in seconds. The default is 5, or the time that the runtime needs;
    a registration that ends the runtime and gives no timeout_s also ends its timeout. With more than 5, an
    attempt that a stop of the service interrupts is made again."""
    runtime: Runtime | str | None = None
    runtime_option_names: list[str] | None = None
    """Only with a runtime: the names of its options; no response contains their values."""
    lease_until: datetime | None = None
    """Only for a subscription of MCP Events: when it is removed unless it is renewed before."""
    connected: Connection | None = None
    """Only with the transport `pull`: the machine that pulls; null when none does."""
    webhook_url: str
    """Where pushes are sent; shown and not used when transport is `pull`, and empty when none was given."""
    webhook_enabled: bool
    """Whether pushes are sent; false after a response of 410."""
    is_active: bool
    """Whether the instance takes part at all."""
    success_statuses: SuccessStatuses | str
    replies: bool | None = None
    """True when its replies to pushes are sent in the meeting; absent otherwise."""
    webhook_header_names: list[str]
    """The names of the headers sent with every push; no response contains their values."""
    health: Health | str
    consecutive_failures: int
    """Failed attempts since the last success."""
    health_since: datetime | None = None
    """When its health last changed; absent when that is unknown."""
    next_try_at: datetime | None = None
    """Only while it backs off: when the next attempt is made, if a delivery waits then. A past time means: as soon
    as a delivery waits."""
    last_success_at: datetime | None
    """When a push last succeeded, up to a second late; null before the first."""
    last_failure: LastFailure | None
    """The last attempt that failed; null when none did."""
    pending_deliveries: int
    """Deliveries that are not settled yet."""
    owner_key_id: str | None
    """The key that owns it. Null when it was registered without keys; then only admins may change it."""
    last_seen_at: datetime | None
    """The last registration or heartbeat."""
    created_at: datetime
    """When it was first registered."""
    updated_at: datetime
    """When a field of the registration last changed."""
    webhook_secret: str | None = Field(default=None, repr=False)
    """Only when it was just made. Keep it, because it is not shown again."""
    dropped_header_names: list[str] | None = None
    """The headers that were dropped, because webhook_url has another origin or transport changed, and
    webhook_headers were not given again."""


class RotatedSecret(Model):
    """The new secret of an instance."""

    webhook_secret: str = Field(repr=False)
    """The new secret; it is not shown again."""
    previous_secret_expires_at: datetime
    """Until then every push is signed with the previous secret too."""
    earlier_secrets_expire_at: list[datetime] | None = None
    """Until then every push is signed with the secrets of earlier rotations too, the newest first: a rotation does
    not shorten the overlap of another. Absent when there are none."""


class SentMessage(Model):
    """The response to a send: the message and its deliveries are on disk."""

    message_id: str
    """The id of a message."""
    meeting_id: str
    """The id of a meeting."""
    seq: int
    """The number of the message in its meeting, from 1."""
    accepted_at: datetime
    """When it was stored."""
    deliveries_queued: int
    """How many instances get it."""


class SendResult(Model):
    """The result of one of many messages: `message` when it is stored, otherwise `problem`."""

    status: int
    """The status that a send of this message alone would get: 201 when it is stored."""
    message: SentMessage | None = None
    replayed: bool | None = None
    """Present when an earlier send with the same idempotency_key stored the message."""
    problem: Problem | None = None
    retry_after_s: int | None = None
    """With a status 429 or 503: when to send it again, in seconds."""


class SentMessages(Model):
    """The results of many messages."""

    results: list[SendResult]
    """In the order of the list."""


class ServiceHistory(Model):
    """The latest counts of the service, column by column. The lists have an item for each step that has ended."""

    counting_since: datetime
    """When this node began to count: its start. Earlier counts are unknown."""
    complete_since: datetime
    """Since when this node has the counts of all other nodes without a gap. It is `counting_since` when there are no
    other nodes, or when no counts were missed."""
    starts_at: datetime
    """When the first step began."""
    ends_at: datetime
    """When the last step ended. Give it as `since` to ask for later ones."""
    step_s: int
    """The length of a step in seconds."""
    accepted: list[int]
    """Messages accepted in each step, the oldest step first."""
    delivered: list[int]
    """Deliveries that succeeded."""
    failed_attempts: list[int]
    """Attempts that failed; most are followed by another attempt."""
    failed: list[int]
    """Deliveries that failed: no further attempt is made."""
    p50_ms: list[int | None]
    """The median of the time from the acceptance of a message to its delivery, in milliseconds. It is off by at most
    an eighth. Null for a step in which nothing was delivered."""
    p95_ms: list[int | None]
    """The same; 95 % of the deliveries took no longer."""


class ServiceNode(Model):
    """One running process of the service."""

    node_id: str
    """The host name of the node, and a part that is new with every start."""
    version: str
    """The version of Convoke that it runs."""
    address: str
    """The URL at which it serves requests: CONVOKE_ADVERTISED_URL, or the address that it listens on."""
    started_at: datetime
    """When it joined."""
    last_seen_at: datetime
    """When it last renewed its lease: every 3 s."""
    state: Literal["up", "stopping", "lost"] | str
    """`stopping`: it releases its partitions; `lost`: it has not renewed its lease for 15 s, and the others take
    over."""
    partitions: int
    """How many of the 64 partitions it holds."""


class ServiceNodeList(Model):
    """The nodes that share the store."""

    data: list[ServiceNode]
    """In the order in which they joined."""


class ServiceStatus(Model):
    """Whether the service is there."""

    status: str
    """ok, or ready."""


class Session(Model):
    """Who is signed in, and what they may do."""

    state: Literal["open", "signed_out", "signed_in"] | str
    """`open`: no key was made, and everybody on this machine may do everything; `signed_out`: a key is needed."""
    key_id: str | None
    """The key that was given; null when open, signed out, or signed in by a link."""
    key_name: str | None
    """The name of that key."""
    scopes: list[Scope | str]
    """The rights of the principal."""
    meeting_ids: list[str] | None
    """The meetings that it is limited to; null: no limit."""
    instance_id: str | None
    """The instance that it is limited to; null: no limit."""
    expires_at: datetime | None
    """When the session ends; null without a cookie."""
    csrf_token: str | None = Field(repr=False)
    """The page sends this token in the header convoke-csrf with every request of the session. Only the response that
    begins the session, and responses to requests with this header, contain the token; null otherwise."""
    version: str
    """The version of the service."""
    environment: str | None
    """The operator's name for this environment, such as production (CONVOKE_ENVIRONMENT); null: none."""
    features: dict[str, Any]
    """The features of this service."""
