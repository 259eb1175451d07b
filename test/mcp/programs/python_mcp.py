"""Takes part in a meeting with the official Python SDK, and prints the results of the
tools."""

import asyncio
import sys

from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main(url: str, token: str, agent_id: str) -> None:
    http_client = create_mcp_http_client(headers={"authorization": f"Bearer {token}"})
    async with http_client, Client(streamable_http_client(url, http_client=http_client)) as client:
        tools = (await client.list_tools()).tools

        async def call(name: str, **args: object) -> dict:
            result = await client.call_tool(name, args)
            assert not result.is_error, result.content
            return result.structured_content

        await call("join_meeting", meeting_id="m", agent_id=agent_id)
        print("joined", flush=True)
        messages: list = []
        while not messages:
            messages = (await call("wait_for_message", agent_id=agent_id, wait_s=50))["messages"]
        received = messages[0]
        content = f"I received: {received['message']['content']}"
        await call("reply", meeting_id="m", message_id=received["message_id"], from_agent=agent_id, content=content)
        print(f"tools {len(tools)}")


asyncio.run(main(*sys.argv[1:]))
