"""The answers of an agent, and their JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from convoke_agents.json_text import json_text
from convoke_agents.results import RESULT_BODY_BYTES_MAX
from convoke_agents.verify import Push


@dataclass(frozen=True)
class Reply:
    """An answer of one agent to some agents."""

    message: str | Mapping[str, Any]
    from_agent: str | None = None
    """One of the `target_agents` of the push; needed when there are several."""
    target_agents: Sequence[str] | None = None
    """Push it to these agents only; None: to all agents of the meeting."""


Said: TypeAlias = str | Mapping[str, Any] | Reply
Answer: TypeAlias = Said | Sequence[Said] | None
"""The answer of an agent in the meeting of the push: a text, a message, a `Reply`, or a list of them. None: nothing."""

Agent: TypeAlias = Callable[[Push], Answer | Awaitable[Answer]]
"""An agent as a function, `def` or `async def`. When it raises, Convoke pushes again later."""


def reply_body(answer: object) -> str | None:
    """The body of a response that replies; None when there is nothing to say.

    :raises TypeError: it is not an `Answer`
    :raises ValueError: it is too long
    """
    if answer is None:
        return None
    if isinstance(answer, (list, tuple)):
        value: dict[str, Any] = {"replies": [_reply(each) for each in cast("Sequence[object]", answer)]}
    else:
        value = {"reply": _reply(answer)}
    body = json_text(value)
    size = len(body.encode())
    if size > RESULT_BODY_BYTES_MAX:
        raise ValueError(f"the answer has {size} bytes as JSON; {RESULT_BODY_BYTES_MAX} are possible")
    return body


def _reply(said: object) -> object:
    if isinstance(said, str):
        return said
    if isinstance(said, Mapping):
        return {"message": cast("Mapping[str, Any]", said)}
    if isinstance(said, Reply):
        message = {"content": said.message} if isinstance(said.message, str) else said.message
        fields = {"from_agent": said.from_agent, "target_agents": said.target_agents}
        return {"message": message, **{name: value for name, value in fields.items() if value is not None}}
    raise TypeError(
        f"an agent answers with a text, a mapping, a Reply, a list of these, or None, not {type(said).__name__}"
    )
