"""The `headers` of a send request. Pure."""

import re

from engine.base.errors import invalid, shown
from engine.mail.client_fields import is_owned
from engine.mail.encoded_words import hidden_control, hides_break
from engine.mail.headers import URL_LISTS
from engine.sending.emails.limits import MAX_HEADER_NAME, MAX_HEADER_VALUE
from engine.sending.emails.types import SendRequest

_FIELD_NAME = re.compile(r"[!-9;-~]+", re.ASCII)  # RFC 5322 2.2: printable ASCII except the colon
_LINE_BREAKERS = re.compile(r"[\r\n\x00]")


def checked_headers(request: SendRequest) -> dict[str, tuple[str, str]]:
    """Return the custom headers (name, value) in order, keyed by lower-case name.

    Raises the 400 for a header that Waybill writes itself, for a line break, and for a name given twice.
    """
    found: dict[str, tuple[str, str]] = {}
    if not request.headers:
        return found
    unsubscribe = request.list_unsubscribe
    also_fields = {"reply-to": request.reply_to}
    also_fields |= {"list-unsubscribe": unsubscribe, "list-unsubscribe-post": unsubscribe}  # RFC 8058 3.1: one of each
    for name, value in request.headers.items():
        field = f"headers.{name[:MAX_HEADER_NAME]}"
        if not _FIELD_NAME.fullmatch(name):
            raise invalid(field, f"{shown(name)!r} is not a header name. Use printable ASCII without spaces or colons.")
        if len(name) > MAX_HEADER_NAME:
            raise invalid(
                field, f"The header name has {len(name)} characters; the limit is {MAX_HEADER_NAME}. Shorten it."
            )
        if len(value) > MAX_HEADER_VALUE:
            raise invalid(
                field, f"The value of {name} has {len(value)} characters; the limit is {MAX_HEADER_VALUE}. Shorten it."
            )
        folded = name.lower()
        if is_owned(folded):
            raise invalid(field, f"Waybill sets {name} itself. Remove it from `headers`.")
        if also_fields.get(folded):
            raise invalid(field, f"{name} is set in `headers` and in its own field. Set it in one of the two.")
        if folded in found:
            raise invalid(field, f"{name} and {found[folded][0]} are the same header. Give it once.")
        forbid_line_breaks(field, value)
        if hidden_control(value.encode("utf-8", "replace")) is not None:
            raise invalid(field, f"{name} contains an encoded word with a control character. Remove it.")
        if folded in URL_LISTS and not (value.strip(" ") and value.isascii() and value.isprintable()):
            # Encoded words would break the links.
            raise invalid(field, f"{name} must contain links in printable ASCII. Percent-encode other characters.")
        found[folded] = (name, value)
    return found


def forbid_line_breaks(field: str, text: str) -> None:
    """Raise the 400 if `text`, which goes into a header, holds CR, LF or NUL, or an encoded word that does."""
    if _LINE_BREAKERS.search(text):
        raise invalid(field, f"`{field}` contains a line break (CR or LF) or NUL. Remove it.")
    if hides_break(text):
        raise invalid(field, f"`{field}` contains an encoded word with a line break. Remove it.")
