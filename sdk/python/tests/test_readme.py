"""README.md, typed as it stands into an environment that has the package and nothing else, against the real service."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Service, joined, said, until

from convoke_agents import ConvokeClient

README = (Path(__file__).parents[1] / "README.md").read_text("utf8")
SECRET = "whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o="
# An environment with the wheel alone, where `npm run test:python` has made one.
ALONE = os.environ.get("CONVOKE_ALONE", sys.executable)


def blocks() -> dict[str, list[str]]:
    """The blocks of Python in README.md, by the name in the mark before each block."""
    found: dict[str, list[str]] = {}
    for name, code in re.findall(r"<!-- test: (.+) -->\n\n```python\n([^`]*?)\n```", README):
        found.setdefault(name, []).append(code)
    assert README.count("```python") == sum(map(len, found.values())), "each block has a mark"
    return found


BLOCKS = blocks()


def start(code: str, service: Service, python: str = ALONE) -> subprocess.Popen[str]:
    """A program in an environment without our variables for Python: it uses only what is installed there."""
    settings = {name: value for name, value in os.environ.items() if python != ALONE or name != "PYTHONPATH"}
    return subprocess.Popen(
        [python, "-W", "error", "-u", "-c", code.replace("http://127.0.0.1:8080", service.url)],
        env={**settings, "CONVOKE_URL": service.url, "WEBHOOK_SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(code: str, service: Service, python: str = ALONE) -> str:
    with start(code, service, python) as running:
        printed, errors = running.communicate(timeout=120)
    assert (running.returncode, errors) == (0, "")
    return printed


def test_the_agent_answers_in_the_meeting(own_service: Service) -> None:
    (code,) = BLOCKS["agent"]
    with ConvokeClient(own_service.url) as client:
        think = "def think(message):\n    return 'I think: ' + message['content']\n\n"
        with start(think + code, own_service) as running:
            try:
                joined(client, "standup-42")
                client.send_message("standup-42", {"content": "What is next?"})
                assert said(client, "standup-42", 2) == ["What is next?", "I think: What is next?"]
            finally:
                running.send_signal(signal.SIGTERM)
        assert running.returncode == 0


def test_what_sends_sends(own_service: Service) -> None:
    printed = output("\n".join([*BLOCKS["send"], "convoke.close()"]), own_service)
    assert re.fullmatch(r"1 1\nlaptop-anna None\nnot registered: instance_does_not_exist \(404\): .+\n", printed), (
        printed
    )
    (code,) = BLOCKS["async"]
    assert output(code, own_service) == "1 {'content': 'Good morning'}\n2 {'content': 'Good morning'}\n"


def test_what_pulls_pulls(own_service: Service) -> None:
    (code,) = BLOCKS["pull"]
    with ConvokeClient(own_service.url) as client, start(code, own_service) as running:
        try:
            joined(client, "retro-7")
            client.send_message("retro-7", {"content": "Well done"})
            assert said(client, "retro-7", 2) == ["Well done", "I have heard it."]
        finally:
            running.kill()


SERVERS = {
    "FastAPI": "import uvicorn\nuvicorn.run(app, port=0, ws='none')",
    "Flask": """
from wsgiref.simple_server import make_server
with make_server("127.0.0.1", 0, app) as server:
    print(f"running on http://127.0.0.1:{server.server_port}")
    server.serve_forever()
""",
    "Django": """
import sys
from types import ModuleType
from wsgiref.simple_server import make_server
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import path
urls = ModuleType("urls")
urls.urlpatterns = [path("convoke", convoke)]
sys.modules["urls"] = urls
settings.configure(ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="x", ROOT_URLCONF="urls")
with make_server("127.0.0.1", 0, get_wsgi_application()) as server:
    print(f"running on http://127.0.0.1:{server.server_port}")
    server.serve_forever()
""",
}


@pytest.mark.parametrize("framework", SERVERS)
def test_what_receives_receives(service: Service, client: ConvokeClient, framework: str) -> None:
    code = "\n".join([*BLOCKS["receive"], *BLOCKS[f"receive in {framework}"], SERVERS[framework]])
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        env={**os.environ, "WEBHOOK_SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            lines = iter(running.stdout.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://127.0.0.1:\d+", line)))
            name = f"readme-{framework}"
            client.register(
                instance_id=name,
                instance_name=name,
                agent_ids=["anna"],
                webhook_url=f"{url}/convoke",
                webhook_secret=SECRET,
            )
            client.join_meeting(instance_id=name, meeting_id=name, agent_ids=["anna"])
            client.send_message(name, {"content": "Good morning"})
            assert any(f"{name} #1 for ['anna']: {{'content': 'Good morning'}}" in line for line in lines)
            until("it is delivered", lambda: client.list_deliveries(meeting_id=name, state="delivered").data)
        finally:
            running.kill()


@pytest.mark.parametrize("document", ["docs/python.md"])
def test_the_documents_show_the_examples_as_they_are(document: str) -> None:
    text = (ROOT / document).read_text("utf8")
    shown = re.findall(r"<!-- test: (sdk/python/examples/.+) -->\n\n```python\n([^`]*)```", text)
    assert len(shown) > 0
    for name, code in shown:
        assert (ROOT / name).read_text("utf8") == code


def block_of(document: str, name: str) -> str:
    (code,) = re.findall(rf"<!-- test: {name} -->\n\n```python\n([^`]*?)\n```", (ROOT / document).read_text("utf8"))
    return str(code)


def test_an_invite_gives_the_key_and_the_instance(own_service: Service) -> None:
    with ConvokeClient(own_service.url) as client:
        token = client.create_key(name="admin", scopes=["admin"]).token
    with ConvokeClient(own_service.url, api_key=token) as admin:
        invite = admin.create_invite(meeting_ids=["standup-42"], agent_ids=["anna"])
    code = block_of("docs/python.md", "invite")
    code = code.replace("https://convoke.example.com/invite/…", invite.link)
    printed = output(code.replace("https://convoke.example.com", own_service.url), own_service)
    assert re.fullmatch(rf"{invite.instance_id} cvk_\w+\n", printed), printed


LATER = """
import asyncio, os
import uvicorn
from convoke_agents import AsyncConvokeClient, Receiver
convoke = AsyncConvokeClient(os.environ["CONVOKE_URL"])

async def think(message):
    return "I think: " + message["content"]

{code}

uvicorn.run(Receiver(os.environ["WEBHOOK_SECRET"], on_push).asgi, port=0, ws="none")
"""


def test_an_agent_that_thinks_for_long_replies_later(own_service: Service) -> None:
    code = LATER.format(code=block_of("docs/python.md", "reply later"))
    with (
        ConvokeClient(own_service.url) as client,
        subprocess.Popen(
            [sys.executable, "-u", "-c", code],
            env={**os.environ, "WEBHOOK_SECRET": SECRET, "CONVOKE_URL": own_service.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running,
    ):
        try:
            assert running.stdout is not None
            lines = iter(running.stdout.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://127.0.0.1:\d+", line)))
            client.register(
                instance_id="later",
                instance_name="later",
                agent_ids=["anna"],
                webhook_url=url,
                webhook_secret=SECRET,
                replies=True,
            )
            client.join_meeting(instance_id="later", meeting_id="later", agent_ids=["anna"])
            client.send_message("later", {"content": "What is next?"})
            assert said(client, "later", 2) == ["What is next?", "I think: What is next?"]
        finally:
            running.kill()
