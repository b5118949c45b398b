"""Seal a message with ARC before it is forwarded (RFC 8617 5.1). Pure.

The new set records the verdicts of the receipt, so that the next server can trust them although forwarding broke SPF
and perhaps DKIM.
"""

from binascii import b2a_base64
from typing import Final

from engine.authentication.arc_sets import MAX_SETS, ArcSet, BadArcChain, arc_sets
from engine.authentication.canonicalization import CanonicalHeader, head_and_body, relaxed_body_hash, relaxed_field
from engine.authentication.dkim_signing import SigningKey, select_fields, signature_lines
from engine.mail.tag_list import BadTagList, parse_tags

SEALED_RESULTS: Final = frozenset({"none", "pass", "fail"})  # a chain with `temperror` can't be extended


def seal(mime: bytes, key: SigningKey, *, results: str, chain: str, at: int) -> bytes:
    """Return the three fields of a new ARC set to prepend to `mime`, each with its CRLF.

    `results` is the text of our Authentication-Results field (`authentication_results.results_text`), `chain` the
    ARC result of the message at its receipt, `at` Unix time in seconds. Returns b"" where no set may be added: the
    chain ended with a failure (RFC 8617 5.1.2), is malformed or full, or was not verified. Raises HeaderTooLarge.
    """
    head, body = head_and_body(mime)
    header = CanonicalHeader(head)
    sets = _extensible(header, chain)
    if sets is None:
        return b""
    instance = len(sets) + 1
    aar = f"ARC-Authentication-Results: i={instance}; {results}".encode()
    ams = _message_signature(head, body, key, instance, at)
    covered = b"".join([field for one in sets for field in _fields(header, one)]) if chain == "pass" else b""
    covered += relaxed_field(aar) + b"\r\n" + relaxed_field(ams) + b"\r\n"
    status = "none" if not sets else chain
    opened = (
        f"ARC-Seal: i={instance}; a={key.algorithm}; t={at}; cv={status};\r\n d={key.domain}; s={key.selector};\r\n b="
    )
    lines = signature_lines(key, covered + relaxed_field(opened.encode()))
    return b"%b%b\r\n%b\r\n%b\r\n" % (opened.encode(), lines.encode(), ams, aar)


def _extensible(header: CanonicalHeader, chain: str) -> tuple[ArcSet, ...] | None:
    """Return the existing sets; None if no set may be added."""
    try:
        sets = arc_sets(header)
        ended = bool(sets) and parse_tags(header.value(sets[-1].seal)).get("cv", "").lower() == "fail"
    except (BadArcChain, BadTagList):
        return None
    consistent = chain in SEALED_RESULTS and (chain == "none") == (not sets)
    return sets if consistent and not ended and len(sets) < MAX_SETS else None


def _fields(header: CanonicalHeader, one: ArcSet) -> tuple[bytes, bytes, bytes]:
    """Return the fields of a set in the order in which seals cover them (RFC 8617 5.1.1)."""
    fields = header.relaxed()
    return fields[one.results], fields[one.signature], fields[one.seal]


def _message_signature(head: bytes, body: bytes, key: SigningKey, instance: int, at: int) -> bytes:
    """Return the ARC-Message-Signature field without its last CRLF; it covers what a DKIM signature of ours covers."""
    names, signed = select_fields(head)
    body_hash = b2a_base64(relaxed_body_hash(body, 0), newline=False).decode()
    opened = (
        f"ARC-Message-Signature: i={instance}; a={key.algorithm}; c=relaxed/relaxed; t={at};\r\n d={key.domain};"
        f" s={key.selector};\r\n h={names};\r\n bh={body_hash};\r\n b="
    ).encode()
    return opened + signature_lines(key, signed + relaxed_field(opened)).encode()
