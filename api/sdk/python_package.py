"""Make the files of the Python package `waybill_client`: hand-written, made synchronous from these, and generated."""

from pathlib import Path
from typing import Final

from api.http.client_names import class_name, python_name
from api.sdk.document import ClientDocument, Schema, read
from api.sdk.error_classes import error_classes
from api.sdk.python_methods import HEAD as METHODS_HEAD
from api.sdk.python_methods import MethodWriter
from api.sdk.python_types import TypeWriter, docstring
from api.sdk.synchronous import derived

RUNTIME: Final = Path(__file__).parent / "runtime"
PACKAGE: Final = "waybill_client"
_ASYNC: Final = "async_"
_CLIENT_HEAD: Final = '''"""The asynchronous client, generated from the operations of the API."""

import platform

import httpx

from . import async_resources as resources
from .async_client import AsyncBaseClient
from .async_transport import DEFAULT_TIMEOUT_S
from .retry import DEFAULT_RETRIES
from .version import __version__
'''
_CLIENT: Final = '''class AsyncWaybill(AsyncBaseClient):
    """A client of one service with one API key; `async with` closes its connections.

    `api_key` and `base_url`, the address of the service without `/v1`, are taken from the environment variables
    WAYBILL_API_KEY and WAYBILL_URL unless given. `timeout` is the time in seconds to wait for a connection and for
    each part of an answer. `max_retries` is the number of further tries of a request that is safe to repeat:
    after a refusal by a rate limit, and, if it can be carried out twice without harm, after 502, 503, 504 and a lost
    connection. Sends always can: each carries an `idempotencyKey`, made here unless you give one. A send whose first
    answer was lost may answer with status `duplicate` and the id of the message that the first try made.

    The client holds no state between calls: threads and tasks may share it. `http_client` replaces the connection pool,
    for proxies and certificates; the caller closes it.
    """
'''
_INIT: Final = '''"""The client of the Waybill e-mail service: `Waybill` for threads, `AsyncWaybill` for asyncio.

    client = Waybill(api_key="svc_live_…", base_url="https://mail.example.com")  # or WAYBILL_API_KEY and WAYBILL_URL
    client.emails.send(from_="hello@example.com", to=["ann@example.net"], subject="Hello", text="It works.")

Arguments are in snake case; objects, in requests and replies, have the field names of the API (`waybill_client.types`).
"""

from . import certificates, errors, types, webhooks
from .api_errors import *  # noqa: F403
from .api_errors import __all__ as _api_errors
from .async_root import AsyncWaybill
from .async_transport import AsyncDownload
from .certificates import CertificateError, verify_certificate
from .errors import (
    ApiError,
    ConnectionFailedError,
    EventsLostError,
    RequestTimeoutError,
    TailClosedError,
    WaybillError,
    WebhookVerificationError,
)
from .root import Waybill
from .transport import Download
from .values import OMIT, Omit, attachment
from .version import __version__

__all__ = [
    "OMIT",
    "ApiError",
    "AsyncDownload",
    "AsyncWaybill",
    "CertificateError",
    "ConnectionFailedError",
    "Download",
    "EventsLostError",
    "Omit",
    "RequestTimeoutError",
    "TailClosedError",
    "Waybill",
    "WaybillError",
    "WebhookVerificationError",
    "__version__",
    "attachment",
    "certificates",
    "errors",
    "types",
    "verify_certificate",
    "webhooks",
    *_api_errors,
]
'''


_ERRORS_HEAD: Final = '''"""The refusals of the API: a class for each `error.type`, generated."""

from typing import Any

from .errors import ApiError
'''


def files(document: Schema, version: str) -> dict[str, str]:
    """Return the package's files by their path below the package's folder, in alphabetical order."""
    found = {path.name: path.read_text("utf-8") for path in RUNTIME.glob("*.py") if path.name != "__init__.py"}
    known = read(document)
    types = TypeWriter(known.schemas)
    methods = MethodWriter(types, known.schemas)
    groups = [methods.group(name, operations) for name, operations in known.groups.items()]
    found |= {
        "__init__.py": _INIT,
        "api_errors.py": _errors(),
        "async_resources.py": "\n\n\n".join([METHODS_HEAD.rstrip(), *groups]) + "\n",
        "async_root.py": _client(known),
        "types.py": types.module(),
        "version.py": f'"""The version of the service that this client was made for."""\n\n__version__ = "{version}"\n',
    }
    for name in [name for name in found if name.startswith(_ASYNC)]:
        found[name.removeprefix(_ASYNC)] = derived(found[name]).replace("asynchronous client", "synchronous client")
    return dict(sorted({**found, "py.typed": ""}.items()))


def _client(known: ClientDocument) -> str:
    lines = [_CLIENT_HEAD.rstrip(), "", "", _CLIENT.rstrip(), ""]
    lines += [
        "    def __init__(",
        "        self,",
        "        api_key: str | None = None,",
        "        *,",
        "        base_url: str | None = None,",
        "        timeout: float = DEFAULT_TIMEOUT_S,",
        "        max_retries: int = DEFAULT_RETRIES,",
        "        http_client: httpx.AsyncClient | None = None,",
        "    ) -> None:",
        "        super().__init__(",
        "            api_key=api_key,",
        "            base_url=base_url,",
        "            timeout=timeout,",
        "            max_retries=max_retries,",
        "            http_client=http_client,",
        '            user_agent=f"waybill-client/{__version__} Python/{platform.python_version()}",',
        "        )",
    ]
    lines += [f"        self.{name} = resources.Async{class_name(name)}(self._transport)" for name in known.groups]
    return "\n".join(lines) + "\n"


def _errors() -> str:
    """Return the module with a class for each `error.type`."""
    parts = [_ERRORS_HEAD.rstrip()]
    classes = error_classes()
    for one in classes:
        fields = "".join(f"\n    {python_name(field)}: Any" for field in one.fields)
        wire = ", ".join(f'"{field}"' for field in one.fields) + ("," if len(one.fields) == 1 else "")
        known = f"\n    FIELDS = ({wire})" if one.fields else ""
        text = "\n".join(docstring(f"`{one.kind}`, HTTP {one.status}.", "    "))
        parts.append(f'class {one.name}(ApiError):\n{text}\n\n    TYPE = "{one.kind}"{known}{fields}')
    listed = "\n".join(f'    "{name}",' for name in sorted(one.name for one in classes))
    return "\n\n\n".join(parts) + f"\n\n\n__all__ = [\n{listed}\n]\n"
