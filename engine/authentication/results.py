"""The verdicts on a received message, and the Authentication-Results field that states them (RFC 8601). Pure."""

import re
from typing import Final, Literal

from msgspec import Struct

DmarcPolicy = Literal["", "none", "quarantine", "reject"]

_MAX_READ: Final = 2_048  # octets of a foreign field in which its authserv-id is searched
_MAX_NESTED: Final = 5  # comments within comments
_unsafe = re.compile(r"[^A-Za-z0-9.:@!#$%&'*+/=?^_`{|}~-]")
_comment = re.compile(rb"\([^()]*\)")
_authserv_id = re.compile(rb'[ \t\r\n]*(?:"([^"]*)"|([^\s;"]+))')


class AuthenticationVerdict(Struct, frozen=True):
    """A verdict: `result` is a word of RFC 8601 2.7, `domain` the domain that it is about, `detail` one line."""

    result: str
    domain: str | None = None
    detail: str = ""


class AuthenticationVerdicts(Struct, frozen=True):
    """The verdicts on one message.

    `dmarc_policy` is the handling that the author domain asks for if DMARC failed, for scoring; "" if it passed or
    there is no policy. The API does not show it.
    """

    spf: AuthenticationVerdict
    dkim: AuthenticationVerdict
    dmarc: AuthenticationVerdict
    arc: AuthenticationVerdict
    dmarc_policy: DmarcPolicy = ""


def results_text(authserv_id: str, verdicts: AuthenticationVerdicts, *, null_sender: bool) -> str:
    """Return the value of an Authentication-Results field, folded, without CRLF at its end.

    `null_sender`: SPF was evaluated for the HELO name.
    """
    parts = (
        _part("spf", verdicts.spf, "smtp.helo" if null_sender else "smtp.mailfrom"),
        _part("dkim", verdicts.dkim, "header.d"),
        _part("dmarc", verdicts.dmarc, "header.from"),
        _part("arc", verdicts.arc, "header.d"),
    )
    return ";\r\n ".join((authserv_id, *parts))


def claims(field: bytes, authserv_id: str) -> bool:
    """Return True if a field is an Authentication-Results field with our authserv-id, or with an unreadable one."""
    name, colon, value = field.partition(b":")
    if not colon or name.strip(b" \t").lower() != b"authentication-results":
        return False
    value = value[:_MAX_READ]
    for _ in range(_MAX_NESTED):
        value = _comment.sub(b" ", value)
    found = _authserv_id.match(value)
    if found is None or b"(" in found[0]:
        return True
    claimed = (found[1] if found[1] is not None else found[2]).strip().lower()
    return claimed.decode("ascii", "replace") == authserv_id.lower()


def _part(method: str, verdict: AuthenticationVerdict, place: str) -> str:
    """Return one result, such as `spf=pass smtp.mailfrom=example.com`."""
    if not verdict.domain:
        return f"{method}={verdict.result}"
    return f"{method}={verdict.result} {place}={_unsafe.sub('', verdict.domain)}"
