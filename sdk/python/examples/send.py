"""Registers a machine that pulls, lets its agent join a meeting, and sends a message there.

CONVOKE_URL and CONVOKE_API_KEY say where the service is, and which key it uses.
"""

import os

from convoke_agents import ConvokeClient

url = os.environ.get("CONVOKE_URL", "http://127.0.0.1:8080")
with ConvokeClient(url, api_key=os.environ.get("CONVOKE_API_KEY")) as convoke:
    convoke.register(instance_id="laptop-anna", instance_name="Anna's laptop", agent_ids=["anna"], transport="pull")
    convoke.join_meeting(instance_id="laptop-anna", meeting_id="standup-42", agent_ids=["anna"])
    sent = convoke.send_message("standup-42", {"content": "Good morning"})
    print(f"{sent.message_id} is #{sent.seq} of {sent.meeting_id}")
