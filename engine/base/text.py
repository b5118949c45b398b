"""What people type into a form, such as a name: bounded, and without what would spoil lists and mail. Pure."""

import unicodedata

from engine.base.errors import invalid

# Controls, lone surrogates, line and paragraph separators. Formats (Cf) stay: scripts and emoji are joined by them.
_SPOILING = frozenset({"Cc", "Cs", "Zl", "Zp"})
# UAX 9, 2.1 to 2.4: embeddings, overrides and isolates turn around what stands beside them in a list.
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def checked_line(text: str, field: str, most: int) -> str:
    """The text without white space around it; 400 when nothing is left, too much, or a control character."""
    line = text.strip()
    if not 1 <= len(line) <= most:
        raise invalid(field, f"`{field}` has 1 to {most} characters.")
    if not is_line(line):
        raise invalid(field, f"`{field}` is one line, without control characters.")
    return line


def is_line(text: str) -> bool:
    """Whether the text is one line, and nothing in it spoils others."""
    return not any(unicodedata.category(char) in _SPOILING or char in _TURNING for char in text)


def checked_text(text: str, field: str, most: int) -> str:
    """Text of several lines: their ends and tabs may stand in it, no other control character. May be empty."""
    if len(text) > most:
        raise invalid(field, f"`{field}` has at most {most} characters.")
    if any(unicodedata.category(char) in _SPOILING and char not in "\r\n\t" for char in text):
        raise invalid(field, f"`{field}` must not hold control characters.")
    return text
