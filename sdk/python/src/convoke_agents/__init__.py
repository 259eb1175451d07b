"""Convoke for Python: a typed client, agents that pull, and a receiver of pushes."""

from importlib.metadata import version

from convoke_agents.async_client import AsyncConvokeClient
from convoke_agents.client import ConvokeClient
from convoke_agents.errors import ConvokeError
from convoke_agents.sending import RawJson
from convoke_agents.verify import Push, VerificationError, VerificationReason, verify, verify_signature

__version__ = version("convoke-agents")

__all__ = [
    "AsyncConvokeClient",
    "ConvokeClient",
    "ConvokeError",
    "Push",
    "RawJson",
    "VerificationError",
    "VerificationReason",
    "verify",
    "verify_signature",
]
