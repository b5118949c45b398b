"""SMTP submission for Locust users: TLS from the first octet, one AUTH, pipelined messages (RFC 2920)."""

import itertools
import smtplib
import ssl
import time
from contextlib import suppress
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, Final

from locust import User, events

from loadtests.kit.message import HTML, SUBJECT, TEXT
from loadtests.scenarios.api_user import pace
from loadtests.scenarios.load_run import load_run

_TIMEOUT_S: Final = 60.0
_MARK: Final = "recipient-of-this-one@mark.test"
_EACH: Final = 200  # messages a session, then another is opened
_turns = itertools.count()


class RelayUser(User):
    """Base class of users that send over SMTP submission."""

    abstract = True
    wait_time = pace

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.sender = load_run.plan.senders[next(_turns) % len(load_run.plan.senders)]
        self._parts = _parts(self.sender.address)
        self._session: smtplib.SMTP_SSL | None = None
        self._sent = 0

    def on_stop(self) -> None:
        """Close the session."""
        if self._session is not None:
            with suppress(smtplib.SMTPException, OSError):
                self._session.quit()
        self._session = None

    def send(self) -> None:
        """Send one message, on a new session if necessary; opening a session counts as a separate request."""
        if not load_run.ready() or not load_run.offer(1):
            return
        if self._session is None or self._sent >= _EACH:
            self.on_stop()
            _timed("open a session", self._open)
        recipient = load_run.recipient()
        self._sent += 1
        problem = _timed("relay", self._deliver, recipient)
        lost = problem is not None and not isinstance(problem, smtplib.SMTPResponseException)
        load_run.record([recipient], [] if problem else [recipient], "relay", lost=lost)
        if problem is not None:
            self.on_stop()

    def _open(self) -> None:
        assert load_run.plan.smtp is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # a service in local mode shows a certificate of its own making
        host, port = load_run.plan.smtp
        self._sent = 0
        session = smtplib.SMTP_SSL(host, port, local_hostname="load.test", timeout=_TIMEOUT_S, context=context)
        session.login("apikey", self.sender.key)
        self._session = session

    def _deliver(self, recipient: str) -> None:
        """Send one message; returns when the service has committed it. Raises OSError or SMTPException."""
        if self._session is None:
            raise smtplib.SMTPServerDisconnected("no session")
        before, after = self._parts
        self._session.send(f"MAIL FROM:<{self.sender.address}>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n")
        for code in (250, 250, 354):
            self._expect(code)
        self._session.send(before + recipient.encode() + after + b".\r\n")
        self._expect(250)

    def _expect(self, code: int) -> None:
        assert self._session is not None
        found, text = self._session.getreply()
        if found != code:
            raise smtplib.SMTPResponseException(found, text)


def _timed(name: str, work: Any, *arguments: Any) -> Exception | None:
    """Do something and report it to Locust; return the error that ended it."""
    began, problem = time.perf_counter(), None
    try:
        work(*arguments)
    except (smtplib.SMTPException, OSError) as error:
        problem = error
    took_ms = (time.perf_counter() - began) * 1000
    events.request.fire(
        request_type="SMTP", name=name, response_time=took_ms, response_length=0, context={}, exception=problem
    )
    return problem


def _parts(sender: str) -> tuple[bytes, bytes]:
    """Return the dot-stuffed message in two parts: before and after the recipient's address."""
    made = EmailMessage(SMTP)
    made["From"], made["To"], made["Subject"] = f"The Shop <{sender}>", _MARK, SUBJECT
    made.set_content(TEXT)
    made.add_alternative(HTML, subtype="html")
    before, _, after = made.as_bytes().replace(b"\r\n.", b"\r\n..").partition(_MARK.encode())
    return before, after
