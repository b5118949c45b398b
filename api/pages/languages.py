"""Choose the language of a page from Accept-Language (RFC 9110 12.5.4). Pure."""

from typing import Final

LANGUAGES: Final = ("en", "de", "es", "fr", "it", "nl", "pl", "pt")  # the first is the default
MAX_RANGES: Final = 20  # browsers send about ten
MAX_HEADER: Final = 1_000  # characters


def preferred(header: str | None) -> str:
    """Return the language among LANGUAGES that the header ranks highest, the first in it among equals."""
    best, best_quality = LANGUAGES[0], 0.0
    for entry in (header or "")[:MAX_HEADER].split(",")[:MAX_RANGES]:
        name, _, parameters = entry.strip().partition(";")
        language = name.strip().partition("-")[0].lower()
        language = LANGUAGES[0] if language == "*" else language
        quality = _quality(parameters)
        if language in LANGUAGES and quality > best_quality:
            best, best_quality = language, quality
    return best


def _quality(parameters: str) -> float:
    """Return the weight of a range; 0 for one that is malformed."""
    name, equals, value = parameters.strip().partition("=")
    if not equals:
        return 0.0 if name else 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if name.strip().lower() == "q" and 0.0 <= weight <= 1.0 else 0.0
