"""The warnings that a reader gives with a received message: a stable code, and a sentence for people."""

from typing import Final

from msgspec import Struct

_MAX_LISTED: Final = 50
_MAX_OF_CODE: Final = 10

TEXTS: Final = {
    "address_unreadable": "An entry of {} is not an email address.",
    "attachment_damaged": "The encoding of attachment {} ({}) is damaged or unknown; {} octets of it were read.",
    "boundary_missing": "A multipart of {} octets has no line with its boundary; it is shown as text.",
    "boundary_undeclared": "A text of {} octets contains parts whose boundary is not declared; they are shown as text.",
    "charset_guessed": "A text or a name states no charset and is not UTF-8; it is read as Windows-1252.",
    "date_missing": "The message has no Date.",
    "date_unreadable": "The Date of the message can't be read.",
    "field_damaged": "{} contains octets that its charset does not have.",
    "field_repeated": "The header has more than one {} field; the first one is used.",
    "from_missing": "The message has no From address.",
    "header_malformed": "Some lines of the header are no fields; they are left out.",
    "header_truncated": "The header exceeds 100 KiB or 1,000 fields; the rest is left out.",
    "infected": "The message contains {}.",
    "message_truncated": "Only the first {:,} bytes of this message are kept.",
    "misleading_name": "The display name of the sender contains an address of another domain.",
    "names_differ": "An attachment has several file names; mail programs differ in which of them they show.",
    "nested_too_deep": "The message nests too deep; the innermost entities are listed as one attachment.",
    "part_field_repeated": "A part has more than one Content field of one name; the first one is used.",
    "part_header_malformed": "The header of a part contains lines that are no fields.",
    "part_header_truncated": "The header of a part exceeds a limit; the rest of it is not read.",
    "several_from": "From contains several addresses; the first one is used.",
    "text_damaged": "Text part {} contains octets that its charset or encoding does not have; {} octets were read.",
    "text_outside_parts": "{} octets before the first part of a multipart, or after its last, are not shown.",
    "text_truncated": "The text exceeds 1 MiB; the rest is left out.",
    "too_many_addresses": "{} contains more than 1,000 addresses; the rest is left out.",
    "too_many_boundaries": "The message has too many lines that look like part boundaries; the rest is one part.",
    "too_many_parts": "The message has too many parts; the rest is listed as one attachment.",
    "unknown_charset": "A text names an unknown charset; it is read as UTF-8.",
}


class MailWarning(Struct, frozen=True, order=True):
    """A warning about a received message; `code` is one of TEXTS."""

    code: str
    text: str


def infected(signature: str) -> MailWarning:
    """Return the warning of a message in which a scanner found a virus."""
    return MailWarning("infected", TEXTS["infected"].format(signature))


def truncated(size: int) -> MailWarning:
    """Return the warning of a message of which only the first `size` octets are kept."""
    return MailWarning("message_truncated", TEXTS["message_truncated"].format(size))


class ReadWarnings:
    """The warnings of one message while it is read; each one counts once, and each code at most _MAX_OF_CODE times."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, dict[MailWarning, None]] = {}

    def add(self, code: str, *about: object) -> None:
        """Add a warning; `about` fills the places of its text: a header field, a part, a number of octets."""
        listed = self._found.setdefault(str(code), {})
        if len(listed) < _MAX_OF_CODE:
            listed[MailWarning(str(code), TEXTS[code].format(*about))] = None

    def listed(self) -> list[MailWarning]:
        """Return all warnings, sorted by code."""
        return [one for code in sorted(self._found) for one in self._found[code]][:_MAX_LISTED]
