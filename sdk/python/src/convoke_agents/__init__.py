"""Convoke for Python: a typed client, agents that pull, and a receiver of pushes."""

from importlib.metadata import version

from convoke_agents.answers import Agent, Answer, Reply
from convoke_agents.async_client import AsyncConvokeClient
from convoke_agents.blocking import Pulling
from convoke_agents.client import ConvokeClient
from convoke_agents.errors import ConvokeError
from convoke_agents.events import FeedEvent
from convoke_agents.pull import AsyncPulling, PushInHand
from convoke_agents.receiver import Receiver, Response
from convoke_agents.sending import RawJson
from convoke_agents.serve import serve_agent, serve_agent_async
from convoke_agents.verify import Push, VerificationError, VerificationReason, verify, verify_signature

__version__ = version("convoke-agents")

__all__ = [
    "Agent",
    "Answer",
    "AsyncConvokeClient",
    "AsyncPulling",
    "ConvokeClient",
    "ConvokeError",
    "FeedEvent",
    "Pulling",
    "Push",
    "PushInHand",
    "RawJson",
    "Receiver",
    "Reply",
    "Response",
    "VerificationError",
    "VerificationReason",
    "serve_agent",
    "serve_agent_async",
    "verify",
    "verify_signature",
]
