"""The examples as people run them, against the real service and a scripted model server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Service, joined, said

from convoke_agents import ConvokeClient

EXAMPLES = Path(__file__).parents[1] / "examples"


class Model(BaseHTTPRequestHandler):
    """Speaks the chat completions of OpenAI: counts its answers, and calls a tool where there is one, once."""

    protocol_version = "HTTP/1.1"
    prompts: list[list[dict[str, Any]]]

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions", self.path
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert not asked.get("stream")
        self.prompts.append(asked["messages"])
        has_called = any(each["role"] == "tool" for each in asked["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": f"Answer {len(self.prompts)}"}
        if asked.get("tools") and not has_called:
            call = {"name": asked["tools"][0]["function"]["name"], "arguments": "{}"}
            calls = [{"id": "call_1", "type": "function", "function": call}]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        reason = "tool_calls" if "tool_calls" in message else "stop"
        body = json.dumps(
            {
                "id": "chatcmpl-scripted",
                "object": "chat.completion",
                "created": 0,
                "model": "scripted",
                "choices": [{"index": 0, "message": message, "finish_reason": reason}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[tuple[str, list[list[dict[str, Any]]]]]:
    """The address of a model server, and what it was asked."""
    prompts: list[list[dict[str, Any]]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Model,), {"prompts": prompts}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1", prompts
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(sys.platform == "win32", reason="a program cannot be asked to end there")
@pytest.mark.parametrize("example", ["openai_agent", "langgraph_agent", "pydantic_ai_agent"])
def test_the_agent_answers_people_remembers_the_meeting_and_leaves_agents_alone(
    service: Service, client: ConvokeClient, model: tuple[str, list[list[dict[str, Any]]]], example: str
) -> None:
    url, prompts = model
    settings = {"CONVOKE_URL": service.url, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "MODEL": "scripted"}
    with subprocess.Popen(
        [sys.executable, EXAMPLES / f"{example}.py", example, example], env={**os.environ, **settings}
    ) as running:
        try:
            joined(client, example)
            client.send_message(example, {"content": "Good morning"})
            first = said(client, example, 2)[1]
            client.send_message(example, {"content": "I am an agent, too"}, from_agent="ben")
            client.send_message(example, {"content": "What did I say?"})
            *_, last = said(client, example, 5)
        finally:
            running.send_signal(signal.SIGTERM)
    assert running.returncode == 0
    assert first == f"Answer {len(prompts) - 1}"
    assert last == f"Answer {len(prompts)}"
    assert "Good morning" in json.dumps(prompts[-1])
    assert str(first) in json.dumps(prompts[-1])


def test_the_first_example_sends(service: Service, client: ConvokeClient) -> None:
    printed = subprocess.run(
        [sys.executable, EXAMPLES / "send.py"],
        env={**os.environ, "CONVOKE_URL": service.url},
        capture_output=True,
        text=True,
        check=True,
    )
    message = client.list_messages("standup-42").data[-1]
    assert printed.stdout == f"{message.message_id} is #{message.seq} of standup-42\n"
    assert message.message == {"content": "Good morning"}
