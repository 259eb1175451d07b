"""A client of openapi-python-client. mypy --strict checks it with the generated files,
and it runs against the service."""

import json
import os

import httpx
from generated.api.instances import get_instance, register
from generated.api.meetings import join_meeting
from generated.api.messages import list_messages, send_message
from generated.api.service import begin_backup, fetch_backup
from generated.client import AuthenticatedClient
from generated.models.backup import Backup
from generated.models.backup_progress import BackupProgress
from generated.models.join_meeting_input import JoinMeetingInput
from generated.models.json_object import JsonObject
from generated.models.membership import Membership
from generated.models.message_page import MessagePage
from generated.models.problem import Problem
from generated.models.register_input import RegisterInput
from generated.models.registered_instance import RegisteredInstance
from generated.models.send_message_input import SendMessageInput
from generated.models.sent_message import SentMessage
from generated.types import File

MEETING_ID = "of openapi-python-client"
INSTANCE_ID = "openapi-python-client"

# A backup takes two seconds at least, and longer on a busy machine. The default of httpx is five.
timeout = httpx.Timeout(60)
with AuthenticatedClient(
    base_url=os.environ["CONVOKE_URL"], token=os.environ["CONVOKE_API_KEY"], timeout=timeout
) as client:
    registration = RegisterInput(
        instance_id=INSTANCE_ID,
        instance_name="A machine",
        agent_ids=["a"],
        webhook_url=os.environ["WEBHOOK_URL"],
    )
    instance = register.sync(client=client, body=registration)
    assert isinstance(instance, RegisteredInstance), instance
    join = JoinMeetingInput(instance_id=INSTANCE_ID, meeting_id=MEETING_ID, agent_ids=["a"])
    assert isinstance(join_meeting.sync(client=client, body=join), Membership)
    message = JsonObject.from_dict({"content": "Hello", "n": 1})
    body = SendMessageInput(message=message)
    sent = send_message.sync(MEETING_ID, client=client, body=body, idempotency_key="once")
    assert isinstance(sent, SentMessage), sent
    page = list_messages.sync(MEETING_ID, client=client)
    assert isinstance(page, MessagePage), page
    problem = get_instance.sync("nobody", client=client)
    assert isinstance(problem, Problem), problem

    backup = begin_backup.sync(client=client)
    assert isinstance(backup, Backup), backup
    copy = fetch_backup.sync(backup.backup_id, client=client)
    while isinstance(copy, BackupProgress):
        copy = fetch_backup.sync(backup.backup_id, client=client)
    assert isinstance(copy, File), copy

    seen = {
        "health": instance.health,
        "seq": sent.seq,
        "contents": [each.message["content"] for each in page.data],
        "code": problem.code,
        "backup": copy.payload.read(15).decode(),
    }
    print(json.dumps(seen))
