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
from aiosmtpd.smtp import SMTP, LoginPassword

from mta.inbound.session import InboundSession
from mta.smtp.server import aiosmtpd_session
from mta.smtp.server.aiosmtpd_session import AiosmtpdSession
from mta.submission.session import SubmissionSession

VERSION = "1.4.6"
ROOT = Path(__file__).parents[2]

# Methods that aiosmtpd calls, or that it inherits from asyncio: name and parameters.
OVERRIDDEN = {
    "_authenticate": "(self, mechanism, auth_data)",
    "challenge_auth": "(self, challenge, encode_to_b64, log_client_response)",
    "connection_lost": "(self, error)",
    "connection_made": "(self, transport)",
    "data_received": "(self, data)",
    "eof_received": "(self)",
    "pause_writing": "(self)",
    "push": "(self, status)",
    "resume_writing": "(self)",
}
INHERITED = {"smtp_AUTH", "auth_LOGIN", "auth_PLAIN"}  # an incoming session refuses AUTH before its method


def test_the_version_of_aiosmtpd_is_the_one_that_was_compared() -> None:
    assert version("aiosmtpd") == aiosmtpd.__version__ == VERSION


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_an_overridden_method_still_exists_with_its_parameters(name: str) -> None:
    assert f"({', '.join(inspect.signature(getattr(SMTP, name)).parameters)})" == OVERRIDDEN[name]


def test_every_override_is_in_the_table() -> None:
    """Public names that begin with `auth_` or `smtp_` are aiosmtpd's interface for mechanisms and commands."""
    inherited = {name for name in vars(AiosmtpdSession) if hasattr(SMTP, name) and not name.startswith("__")}
    inherited -= {"AuthLoginUsernameChallenge", "AuthLoginPasswordChallenge", "hostname", "loop", "transport"}
    assert inherited == set(OVERRIDDEN)


def test_no_command_is_answered_by_aiosmtpd() -> None:
    """aiosmtpd's constructor does not run, so that its commands and stream methods would fail."""
    for session in (InboundSession, SubmissionSession):
        own = {name for one in session.__mro__[: session.__mro__.index(SMTP)] for name in vars(one)}
        offered = {name for name in dir(SMTP) if name.startswith(("smtp_", "auth_"))}
        events = {name for name in dir(asyncio.Protocol) if not name.startswith("_")}
        assert (offered | events) - own <= INHERITED


@pytest.mark.parametrize(
    "arguments", [["PLAIN", "AGEAYg=="], ["PLAIN"], ["LOGIN", "YQ=="], ["LOGIN"]], ids="-".join
)
async def test_a_mechanism_needs_nothing_of_the_constructor(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [b"\0a\0b"] if arguments[0] == "PLAIN" else [b"a", b"b"][len(arguments) - 1 :]

    async def answer(*_: Any, **__: Any) -> bytes:
        return answers.pop(0)

    monkeypatch.setattr(InboundSession, "challenge_auth", answer)
    made = InboundSession.__new__(InboundSession)
    result = await getattr(made, f"auth_{arguments[0]}")(made, arguments)
    assert result.auth_data == LoginPassword(b"a", b"b")


def test_a_session_has_no_instance_dictionary_of_its_own() -> None:
    """Thousands of idle sessions stay open: a dictionary of their attributes would take 1.5 KB of each."""
    for session in (InboundSession, SubmissionSession):
        layers = session.__mro__[: session.__mro__.index(SMTP)]
        assert all("__slots__" in vars(one) for one in layers)


def test_only_one_file_touches_aiosmtpd() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for folder in ("mta", "ops", "engine", "api")
        for path in (ROOT / folder).rglob("*.py")
        if "aiosmtpd.smtp" in path.read_text()
    }
    assert importing == {Path(aiosmtpd_session.__file__).relative_to(ROOT).as_posix()}
