"""Validate text from forms, such as names: its length, and no characters that break lists or mail."""

import unicodedata

from engine.base.errors import invalid

# Controls, lone surrogates, line and paragraph separators. Format characters (Cf) stay: scripts and emoji need them.
_FORBIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
# UAX 9, 2.1 to 2.4: embeddings, overrides and isolates can reverse the text beside them in a list.
_DIRECTION_CHANGING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def checked_line(text: str, field: str, max_length: int) -> str:
    """Return `text` without surrounding blanks. Raises a 400 if it is empty, too long or has a control character."""
    line = text.strip()
    if not 1 <= len(line) <= max_length:
        raise invalid(field, f"`{field}` has {len(line)} characters; it must have 1 to {max_length}.")
    if not is_line(line):
        raise invalid(field, f"`{field}` must be one line without control characters.")
    return line


def is_line(text: str) -> bool:
    """Return True for one line without control or direction-changing characters."""
    return not any(unicodedata.category(char) in _FORBIDDEN or char in _DIRECTION_CHANGING for char in text)


def checked_text(text: str, field: str, max_length: int) -> str:
    """Return text of several lines, possibly empty. Raises a 400 if it is too long or has other control characters."""
    if len(text) > max_length:
        raise invalid(field, f"`{field}` has {len(text)} characters; the limit is {max_length}. Shorten it.")
    if any(unicodedata.category(char) in _FORBIDDEN and char not in "\r\n\t" for char in text):
        raise invalid(field, f"`{field}` must not contain control characters other than line ends and tabs.")
    return text
