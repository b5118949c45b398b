"""`waybill mcp`: the MCP server on standard input and output, for an agent's program on this machine.

It calls the API of a Waybill anywhere, with a key; it needs neither the service nor a database here.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

import aiohttp
import click

from api.http.service_addresses import has_mcp
from api.mcp.calls import MAX_ANSWER_BYTES, Api, CallAnswer
from engine.base.settings import BadSetting
from ops.commands.api_access import URL_VARIABLE, NoApiKey, api_access
from ops.commands.base import fail, reported

_LIMIT_S: Final = aiohttp.ClientTimeout(total=45, connect=10)


@click.command()
@click.option(
    "--url", metavar="URL", help=f"The service; default: {URL_VARIABLE}, or the service of the first run here."
)
@reported
def mcp(*, url: str | None) -> None:
    """Serve the tools of the MCP server on standard input and output, for an agent's program.

    The key is WAYBILL_API_KEY, or that of the first run; its scopes decide which tools there are. Needs the package of
    the extra: pip install 'waybill[mcp]'.
    """
    if not has_mcp():
        fail("The MCP server is not installed here. Install it: pip install 'waybill[mcp]'.")
    try:
        access = api_access(None)
    except (BadSetting, NoApiKey, OSError) as error:
        fail(str(error))
    logging.basicConfig(level=logging.ERROR)  # on standard error; standard output is the protocol's
    asyncio.run(_serve((url or access["baseUrl"]).rstrip("/"), access["apiKey"]))


async def _serve(url: str, key: str) -> None:
    """Serve until standard input ends."""
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - of the extra

    from api.mcp.server import build_server, client_of  # noqa: PLC0415 - imports the extra too

    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers, timeout=_LIMIT_S) as session:
        caller = RemoteCaller(url, session)
        server = build_server(lambda context: Api(caller, client_of(context)))
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


class RemoteCaller:
    """Calls the API of a service over HTTP."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> CallAnswer:
        """Return the answer of the service. Raises OSError if there is none, or too much."""
        try:
            async with self._session.request(
                method, self._url + target, headers=headers, data=body or None, allow_redirects=False
            ) as response:
                content = bytearray()
                async for piece in response.content.iter_chunked(65_536):
                    content += piece
                    if len(content) > MAX_ANSWER_BYTES:
                        raise OSError("the answer is too large")
                return CallAnswer(response.status, bytes(content))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OSError(str(error) or "no answer in time") from error
