"""Recognise domains of public mailbox providers, such as gmail.com.

Customers can't publish DKIM records there, and the providers' DMARC policies refuse mail sent elsewhere. The check only
explains a mistake early; it is no protection: control of a domain is proved by a DNS record.
"""

from functools import cache
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_suffix(".txt")

# Providers with domains in many countries: yahoo.co.uk, hotmail.fr.
_ANYWHERE: Final = frozenset({"yahoo", "hotmail", "gmx", "yandex"})


def mailbox_provider(name: str) -> str | None:
    """Return the provider's domain that equals or contains `name` (lower-case A-labels), or None."""
    labels = name.split(".")
    for start in range(len(labels) - 1):
        above = ".".join(labels[start:])
        if above in _domains() or (labels[start] in _ANYWHERE and _is_country_form(labels[start + 1 :])):
            return above
    return None


def _is_country_form(suffix: list[str]) -> bool:
    """Return True for `fr`, `co.uk`, `com.br` and similar suffixes."""
    return len(suffix[-1]) == 2 and (len(suffix) == 1 or (len(suffix) == 2 and suffix[0] in {"co", "com", "ne"}))


@cache
def _domains() -> frozenset[str]:
    lines = _FILE.read_text("ascii").splitlines()
    return frozenset(" ".join(line for line in lines if not line.startswith("#")).split())
