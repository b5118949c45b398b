"""Find tokens of return paths in received reports; `return_path.origin` verifies them."""

import re
from typing import Final

from engine.mail.report_parts import MAX_READ

MAX_TOKENS: Final = 8

# The plus sign may be written in quoted-printable or xtext. Rewriting forwarders (SRS) keep the local part.
_token = re.compile(rb"(?<![0-9a-z])b(?:\+|=2B|\+2B)([0-9a-hjkmnp-tv-z]{40})(?![0-9a-z])", re.IGNORECASE).finditer
# Quoted-printable text breaks lines anywhere by "=" before the line end.
_SOFT_BREAKS: Final = re.compile(rb"=\r?\n")


def tokens_in(raw: bytes) -> tuple[str, ...]:
    """Return the different tokens in the first MAX_READ octets of a report, in lower case, at most MAX_TOKENS."""
    text = _SOFT_BREAKS.sub(b"", raw[:MAX_READ])
    return tuple(dict.fromkeys(found[1].decode().lower() for found in _token(text)))[:MAX_TOKENS]
