"""A real Convoke for the tests: a process of its own, on a free port, with a data directory of its own."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from convoke_agents import ConvokeClient, ConvokeError

ROOT = Path(__file__).parents[3]
# Longer than anything takes, even on a busy machine.
DEADLINE_S = 60.0

T = TypeVar("T")


def until(what: str, look: Callable[[], T | None]) -> T:
    """Calls `look` until it finds something, and returns that."""
    give_up_at_s = time.monotonic() + DEADLINE_S
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up_at_s, f"never: {what}"
        time.sleep(0.02)


class Service:
    """`convoke serve`, as the tests in TypeScript start it."""

    url: str

    def __init__(self, data: Path) -> None:
        self._data = data
        self._port = "0"
        self.start()

    def start(self) -> None:
        """Starts the service. After `stop`, starts it again on the same port and with the same data."""
        settings = {name: value for name, value in os.environ.items() if not name.startswith("CONVOKE_")}
        node = os.environ.get("CONVOKE_NODE", str(ROOT / "node_modules/.bin/node"))
        self._process = subprocess.Popen(
            [node, "src/cli/main.ts", "serve", "--port", self._port, "--data", str(self._data)],
            cwd=ROOT,
            env={**settings, "CONVOKE_LOG_FORMAT": "json", "CONVOKE_LOG_LEVEL": "error"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            ready = re.search(r"\bready (http://\S+)", line)
            if ready:
                self.url = ready[1]
                self._port = self.url.rsplit(":", 1)[1]
                # Reads further output, so that the service does not wait for a reader.
                threading.Thread(target=self._process.stdout.read, daemon=True).start()
                return
        raise AssertionError("the service did not start")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture(scope="session", autouse=True)
def _no_proxy() -> None:
    """Everything is on loopback."""
    os.environ["NO_PROXY"] = "127.0.0.1,localhost"
    for name in list(os.environ):
        if name.startswith("CONVOKE_") and name not in ("CONVOKE_NODE", "CONVOKE_ALONE"):
            del os.environ[name]


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests. Each test uses meetings and instances of its own."""
    running = Service(tmp_path_factory.mktemp("service"))
    yield running
    running.stop()


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    """A service that only this test uses, so that the test may stop it or make keys."""
    running = Service(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def client(service: Service) -> Iterator[ConvokeClient]:
    with ConvokeClient(service.url) as client:
        yield client


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def enter(client: ConvokeClient, instance_id: str, meeting_id: str, *, ack_timeout_s: int = 60) -> str:
    """Registers an instance that pulls and replies, lets it into a meeting, and returns its secret."""
    registered = client.register(
        instance_id=instance_id,
        instance_name="A machine",
        agent_ids=[instance_id],
        transport="pull",
        replies=True,
        ack_timeout_s=ack_timeout_s,
    )
    client.join_meeting(instance_id=instance_id, meeting_id=meeting_id, agent_ids=[instance_id])
    return registered.webhook_secret or ""


def said(client: ConvokeClient, meeting_id: str, count: int) -> list[object]:
    """The messages of a meeting, as soon as there are `count` of them or more."""

    def look() -> list[object] | None:
        messages = [each.message.get("content") for each in client.all_messages(meeting_id)]
        return messages if len(messages) >= count else None

    return until(f"{count} messages in {meeting_id}", look)


def joined(client: ConvokeClient, meeting_id: str) -> None:
    """Waits for an instance in the meeting."""

    def look() -> bool:
        try:
            return len(client.list_meeting_instances(meeting_id).data) > 0
        except ConvokeError:
            return False

    until(f"somebody in {meeting_id}", look)
