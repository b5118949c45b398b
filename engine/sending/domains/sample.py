"""Let an independent verifier, dkimpy, judge a sample that a stored key signs by the record that DNS shows.

`records.status_of` compares values: a record can hold our key and be rejected by verifiers for the rest of its text,
and a stored private key can have another public half than the row says. Only a signature shows both.
"""

import logging
from typing import Final

import dkim as verifier

from engine.authentication import dkim_signing as dkim
from engine.authentication.dkim_signing import SigningKey
from engine.base import clock

_TEXT: Final = b"From: postmaster@%b\r\nSubject: Sample\r\n\r\nA sample that is never sent.\r\n"


class _Reasons(logging.Handler):
    """The reasons that dkimpy logs before it returns False."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store the text of the log record."""
        self.texts.append(record.getMessage())


def rejection(key: SigningKey, record: str) -> str | None:
    """Return why a sample signed with an RSA key fails with `record` as the TXT record of the key; None if it passes.

    Takes about 6 ms of CPU: call it in a thread.
    """
    mime = _TEXT % key.domain.encode()
    signed = dkim.sign(mime, [key], at=int(clock.machine_now().timestamp())) + mime
    reasons, logger = _Reasons(), logging.Logger("dkimpy")  # noqa: LOG001 - for this call alone
    logger.addHandler(reasons)
    try:
        passes = verifier.DKIM(signed, logger=logger).verify(dnsfunc=lambda *_, **__: record.encode())
    except (verifier.DKIMException, ValueError, KeyError, IndexError) as error:
        return str(error) or type(error).__name__
    return None if passes else "; ".join(reasons.texts) or "the record has another key than the one that signs"
