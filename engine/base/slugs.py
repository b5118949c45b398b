"""Validate and derive slugs: the ids that customers choose for templates and streams."""

import re
import unicodedata

MAX_SLUG = 64
PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"  # for schemas
_is_slug = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*").fullmatch
_gaps = re.compile(r"[^a-z0-9]+")
_LETTERS = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ı": "i"})


def is_slug(text: str) -> bool:
    """Return True for lower-case letters and digits in groups joined by single hyphens, 1 to 64 characters."""
    return len(text) <= MAX_SLUG and _is_slug(text) is not None


def slug_of(name: str) -> str | None:
    """Derive a slug from a name: `Order confirmed!` → `order-confirmed`. None if no usable character is left.

    Accents are removed; so are letters outside the Latin script, which have no agreed transliteration.
    """
    plain = unicodedata.normalize("NFKD", name.casefold().translate(_LETTERS)).lower()
    kept = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return _gaps.sub("-", kept).strip("-")[:MAX_SLUG].rstrip("-") or None
