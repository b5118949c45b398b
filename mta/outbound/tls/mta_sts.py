"""MTA-STS texts (RFC 8461): the TXT record, the policy, and which mail hosts a policy allows; pure."""

import re
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

MAX_OCTETS = 64 * 1024  # RFC 8461 3.2 suggests this bound
MAX_S = 31_557_600  # about a year (RFC 8461 3.2); longer ones are cut to this
MAX_PATTERNS = 1_000

_RECORD = re.compile(rb"v=STSv1(?:[ \t]*;[ \t]*[A-Za-z0-9][A-Za-z0-9_.-]{0,31}=[!-:<>-~]+)+[ \t]*;?[ \t]*")
_ID = re.compile(rb";[ \t]*id=([^ \t;]+)")
_PLAIN_ID = re.compile(rb"[A-Za-z0-9]{1,32}")
_FIELD = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,31}):[ \t]*([!-~\x80-\U0010ffff](?:[ -~\x80-\U0010ffff]*))")
_HOST = re.compile(
    r"(?:\*\.)?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII
)
_SECONDS = re.compile(r"[0-9]{1,10}", re.ASCII)
_FIRST_ONLY = ("version", "mode", "max_age")


class StsMode(StrEnum):
    """The mode that the domain asks for."""

    ENFORCE = "enforce"
    TESTING = "testing"
    NONE = "none"


class StsPolicy(Struct, frozen=True):
    """A policy: `patterns` are lower case, a host name or `*.` and one; `max_age_s` counts from the fetch."""

    mode: StsMode
    patterns: tuple[str, ...]
    max_age_s: int

    def allows(self, host: str) -> bool:
        """Return True if the policy names `host`, the name of an MX host (RFC 8461 4.1)."""
        name = host.lower().removesuffix(".")
        label, _, parent = name.partition(".")
        return name in self.patterns or (label != "" and parent != "" and f"*.{parent}" in self.patterns)


class InvalidPolicy(ValueError):  # noqa: N818 - named for what it is about
    """The text is not a valid policy; the message says why."""


def record_id(texts: Sequence[bytes]) -> str | None:
    """The id in the TXT records of `_mta-sts.<domain>`; None when they announce no policy (RFC 8461 3.1).

    Records that begin otherwise don't count; more than one that counts, or a malformed one, is none.
    """
    found = [text for text in texts if text.startswith(b"v=STSv1;")]
    if len(found) != 1 or _RECORD.fullmatch(found[0]) is None:
        return None
    identity = _ID.search(found[0])
    if identity is None or _PLAIN_ID.fullmatch(identity[1]) is None:
        return None
    return identity[1].decode("ascii")


def parse(body: bytes) -> StsPolicy:
    """The policy in an HTTPS body; raises InvalidPolicy (RFC 8461 3.2).

    Unknown fields are passed over. Of `version`, `mode` and `max_age` the first one counts.
    """
    fields, patterns = _fields(body)
    if fields.get("version") != "STSv1":
        raise InvalidPolicy("version is not STSv1")
    try:
        mode = StsMode(fields.get("mode", ""))
    except ValueError:
        raise InvalidPolicy("mode is not enforce, testing or none") from None
    seconds = fields.get("max_age", "")
    if _SECONDS.fullmatch(seconds) is None:
        raise InvalidPolicy("max_age is not a number of seconds")
    for pattern in patterns:
        if len(pattern) > 255 or _HOST.fullmatch(pattern) is None:
            raise InvalidPolicy(f"mx is no host name: {pattern[:80]!r}")
    if not patterns and mode is not StsMode.NONE:
        raise InvalidPolicy("no mx field")
    if len(patterns) > MAX_PATTERNS:
        raise InvalidPolicy(f"more than {MAX_PATTERNS:,} mx fields")
    return StsPolicy(mode, tuple(dict.fromkeys(patterns)), min(int(seconds), MAX_S))


def _fields(body: bytes) -> tuple[dict[str, str], list[str]]:
    if len(body) > MAX_OCTETS:
        raise InvalidPolicy(f"the policy exceeds {MAX_OCTETS:,} octets")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidPolicy("the policy is not UTF-8") from None
    found: dict[str, str] = {}
    patterns: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        stripped = line.rstrip(" \t")
        if not stripped:
            continue
        field = _FIELD.fullmatch(stripped)
        if field is None:
            raise InvalidPolicy(f"not a field: {stripped[:60]!r}")
        if field[1] == "mx":
            patterns.append(field[2].lower())
        elif field[1] in _FIRST_ONLY:
            found.setdefault(field[1], field[2])
    return found, patterns
