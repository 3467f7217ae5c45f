"""Agents for tests: clients of the protocol's own library, of a server in this process, or of the real command."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TextIO

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent

from horsies.core.app import Horsies
from horsies.core.models.broker import PostgresConfig
from horsies.mcp.protocol import NOTE, make_server
from horsies.mcp.tools import Workbench, masking_for

ROOT = Path(__file__).parents[2]
# It prints while it is imported, and so does a program that it starts.
SHOP = """
import os
import subprocess
import sys

from horsies import AppConfig, Horsies

print("PRINTED BY THE MODULE", flush=True)
subprocess.run([sys.executable, "-c", "print('PRINTED BY A PROGRAM')"])

app = Horsies(AppConfig.for_database_url(os.environ["SHOP_DATABASE_URL"]))


@app.task("shop.price")
def price(order: int, token: str = "") -> int:
    return order
"""


class Agent:
    """Calls tools, and checks what every answer must have."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def ask(self, tool: str, /, **arguments: Any) -> Any:
        """The answer itself."""
        return (await self.whole(tool, **arguments))["answer"]

    async def whole(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult) and not result.is_error, text_of(result)
        answer: dict[str, Any] = result.structured_content
        assert json.loads(text_of(result)) == answer, "for clients that read the text only"
        assert answer["note"] == NOTE
        return answer

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """The words of an error."""
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult) and result.is_error, text_of(result)
        assert result.structured_content is None
        return text_of(result)


def text_of(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@contextlib.asynccontextmanager
async def an_agent(
    source: Horsies | PostgresConfig | str,
    *,
    enable_actions: bool = False,
    mask: tuple[str, ...] = (),
    hide_payloads: bool = False,
) -> AsyncIterator[Agent]:
    """An agent whose server is in this process."""
    source = PostgresConfig(database_url=source) if isinstance(source, str) else source
    app = source if isinstance(source, Horsies) else None
    bench = Workbench(source, actor="mcp:ada", masking=masking_for(app, mask, hides_all=hide_payloads))
    try:
        async with Client(make_server(bench, enable_actions=enable_actions)) as client:
            yield Agent(client)
    finally:
        await bench.close()


@contextlib.asynccontextmanager
async def a_started_agent(
    directory: Path, url: str, *options: str, errlog: TextIO = sys.stderr, mode: str = "auto"
) -> AsyncIterator[Agent]:
    """An agent that has started the command in a directory with `shop.py`, as a coding agent would."""
    (directory / "shop.py").write_text(SHOP)
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "horsies", "mcp", "shop:app", *options],
        cwd=directory,
        env={"SHOP_DATABASE_URL": url, "PYTHONPATH": str(ROOT), "LOGNAME": "grace"},
    )
    async with Client(stdio_client(command, errlog=errlog), mode=mode) as client:
        yield Agent(client)
