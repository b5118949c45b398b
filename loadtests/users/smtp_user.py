"""SMTP submission for Locust users: TLS from the first octet, one AUTH, pipelined messages (RFC 2920)."""

import itertools
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, Final

import gevent
from locust import User, events

from loadtests.users.load_plan import LoadSender
from loadtests.users.load_run import load_run
from loadtests.users.messages import HTML, SUBJECT, TEXT

_TIMEOUT_S: Final = 60.0
_MARK: Final = "recipient-of-this-one@mark.test"
_EACH: Final = 200  # messages a session, then another is opened
_turns = itertools.count()


class UnexpectedReply(Exception):  # noqa: N818 - named for what happened
    """A reply with another code than expected."""


class RelaySession:
    """An SMTP session; raises OSError when the connection breaks and UnexpectedReply for a refusal."""

    def __init__(self, address: tuple[str, int], key: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # a service in local mode shows a certificate of its own making
        plain = socket.create_connection(address, _TIMEOUT_S)
        self._socket = context.wrap_socket(plain)
        self._lines = self._socket.makefile("rb")
        self._expect(b"220")
        self._command(b"EHLO load.test", b"250")
        self._command(b"AUTH PLAIN " + b64encode(b"\0apikey\0" + key.encode()), b"235")

    def send(self, sender: str, recipient: str, content: bytes) -> None:
        """Send one message; returns when the service has committed it."""
        self._socket.sendall(f"MAIL FROM:<{sender}>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n".encode())
        for code in (b"250", b"250", b"354"):
            self._expect(code)
        self._socket.sendall(content + b".\r\n")
        self._expect(b"250")

    def close(self) -> None:
        """Send QUIT and close the connection without waiting for the reply."""
        with suppress(OSError):
            self._socket.sendall(b"QUIT\r\n")
        self._lines.close()
        self._socket.close()

    def _command(self, line: bytes, code: bytes) -> None:
        self._socket.sendall(line + b"\r\n")
        self._expect(code)

    def _expect(self, code: bytes) -> None:
        line = self._lines.readline(2_048)
        while line[3:4] == b"-":
            line = self._lines.readline(2_048)
        if not line:
            raise ConnectionResetError("the relay closed the session")
        if not line.startswith(code):
            raise UnexpectedReply(line.decode("utf-8", "replace").strip())


class RelayUser(User):
    """Base class of users that send over SMTP submission."""

    abstract = True

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.sender = load_run.plan.senders[next(_turns) % len(load_run.plan.senders)]
        self._parts = _parts(self.sender)
        self._session: RelaySession | None = None
        self._sent = 0
        self._due = 0.0

    def on_stop(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()

    def send(self) -> None:
        """Send one message, on a new session if necessary; opening a session is recorded as a separate request."""
        while load_run.waiting:
            gevent.sleep(0.02)
        if load_run.over or not load_run.offer(1):
            gevent.sleep(0.1)
            return
        recipient = load_run.recipient()
        context: dict[str, Any] = {"recipients": [recipient], "accepted": []}
        if self._session is None or self._sent >= _EACH:
            self._open()
        before, after = self._parts
        began, problem = time.perf_counter(), None
        try:
            if self._session is None:
                raise ConnectionResetError("no session")
            self._session.send(self.sender.address, recipient, before + recipient.encode() + after)
            context |= {"accepted": [recipient], "status": "250"}
        except (OSError, UnexpectedReply) as error:
            problem = error
            context["status"] = str(error)[:3] if isinstance(error, UnexpectedReply) else "lost"
            self._drop()
        self._sent += 1
        _fire("relay", began, context, problem)

    def _open(self) -> None:
        self._drop()
        assert load_run.plan.smtp is not None
        began, problem = time.perf_counter(), None
        try:
            self._session = RelaySession(load_run.plan.smtp, self.sender.key)
        except (OSError, UnexpectedReply) as error:
            problem = error
        self._sent = 0
        status = "235" if problem is None else str(problem)[:3]
        _fire("open a session", began, {"group": "opening", "status": status}, problem)

    def _drop(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


def _fire(name: str, began: float, context: dict[str, Any], problem: Exception | None) -> None:
    fire: Callable[..., None] = events.request.fire
    fire(
        request_type="SMTP", name=name, response_time=(time.perf_counter() - began) * 1000, response_length=0,
        context=context, exception=problem, response=None,
    )  # fmt: skip


def _parts(sender: LoadSender) -> tuple[bytes, bytes]:
    """Return the dot-stuffed message in two parts: before and after the recipient's address."""
    made = EmailMessage(SMTP)
    made["From"], made["To"], made["Subject"] = f"The Shop <{sender.address}>", _MARK, SUBJECT
    made.set_content(TEXT)
    made.add_alternative(HTML, subtype="html")
    before, _, after = made.as_bytes().replace(b"\r\n.", b"\r\n..").partition(_MARK.encode())
    return before, after
