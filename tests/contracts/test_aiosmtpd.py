"""aiosmtpd's private parts, as far as `mta.smtp.server.aiosmtpd_session` overrides or uses them.

A new version of aiosmtpd fails here first: compare its `SMTP` with the overrides, then change version and table.
"""

import asyncio
import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiosmtpd
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from mta.smtp.server import aiosmtpd_session
from mta.smtp.server.aiosmtpd_session import AiosmtpdSession
from tests.harness.patience import PATIENCE_S

VERSION = "1.4.6"
ROOT = Path(__file__).parents[2]

# Methods that aiosmtpd calls, or that it inherits from asyncio: name and parameters.
OVERRIDDEN = {
    "_handle_client": "(self)",
    "_reset_timeout": "(self, duration)",
    "_timeout_cb": "(self)",
    "challenge_auth": "(self, challenge, encode_to_b64, log_client_response)",
    "connection_lost": "(self, error)",
    "data_received": "(self, data)",
    "eof_received": "(self)",
    "push": "(self, status)",
}
# Attributes of an instance that the session reads or writes.
USED = ("_auth_methods", "_handler_coroutine", "_over_ssl", "_timeout_handle", "_writer", "transport")


def test_the_version_of_aiosmtpd_is_the_one_that_was_compared() -> None:
    assert version("aiosmtpd") == aiosmtpd.__version__ == VERSION


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_an_overridden_method_still_exists_with_its_parameters(name: str) -> None:
    assert f"({', '.join(inspect.signature(getattr(SMTP, name)).parameters)})" == OVERRIDDEN[name]


def test_every_override_is_in_the_table() -> None:
    """Public names that begin with `auth_` or `smtp_` are aiosmtpd's interface for mechanisms and commands."""
    inherited = {name for name in vars(AiosmtpdSession) if hasattr(SMTP, name) and not name.startswith("__")}
    assert inherited - {"AuthLoginUsernameChallenge", "AuthLoginPasswordChallenge"} == set(OVERRIDDEN)


async def test_the_attributes_in_use_still_exist() -> None:
    made = SMTP(object(), loop=asyncio.get_running_loop())
    reader, writer = await _connected(made)
    try:
        assert [name for name in USED if not hasattr(made, name)] == []
        assert {"PLAIN", "LOGIN"} <= set(made._auth_methods)
        assert "_transport" in vars(made._writer)
    finally:
        writer.close()
        reader.feed_eof()


async def test_a_mechanism_hands_its_password_to_the_authenticator() -> None:
    found: list[Any] = []

    def authenticator(*given: Any) -> AuthResult:
        found.append(given[-1])
        return AuthResult(success=True, auth_data=given[-1])

    made = SMTP(object(), authenticator=authenticator, auth_require_tls=False, loop=asyncio.get_running_loop())
    made.session, made.envelope = made._create_session(), made._create_envelope()
    result = await made._auth_methods["PLAIN"].method(made, ["PLAIN", "AGEAYg=="])
    assert (result.auth_data, found) == (LoginPassword(b"a", b"b"), [LoginPassword(b"a", b"b")])


def test_only_one_file_touches_aiosmtpd() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for folder in ("mta", "ops", "engine", "api")
        for path in (ROOT / folder).rglob("*.py")
        if "aiosmtpd.smtp" in path.read_text()
    }
    assert importing == {Path(aiosmtpd_session.__file__).relative_to(ROOT).as_posix()}


async def _connected(protocol: SMTP) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Serve one client with `protocol`; return the client's streams after the greeting."""
    server = await asyncio.get_running_loop().create_server(lambda: protocol, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    async with asyncio.timeout(PATIENCE_S):
        await reader.readline()
    server.close()
    return reader, writer
