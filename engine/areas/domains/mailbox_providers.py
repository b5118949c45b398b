"""Domains under which public mailbox providers give addresses to anybody.

No customer can publish a DKIM record there, and each provider's DMARC policy refuses mail that it did not send itself.
Adding such a domain is a misunderstanding worth a sentence. It guards nothing: proof of a domain is a record in DNS.
"""

from functools import cache
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_suffix(".txt")

# Providers that have a domain in many countries: yahoo.co.uk, hotmail.fr.
_ANYWHERE: Final = frozenset({"yahoo", "hotmail", "gmx", "yandex"})


def mailbox_provider(name: str) -> str | None:
    """Return the provider's domain that `name` (lower-case A-labels) is or lies below; None where it is no such."""
    labels = name.split(".")
    for start in range(len(labels) - 1):
        above = ".".join(labels[start:])
        if above in _domains() or (labels[start] in _ANYWHERE and _is_country_form(labels[start + 1 :])):
            return above
    return None


def _is_country_form(suffix: list[str]) -> bool:
    """True for `fr`, `co.uk`, `com.br` and the like."""
    return len(suffix[-1]) == 2 and (len(suffix) == 1 or (len(suffix) == 2 and suffix[0] in {"co", "com", "ne"}))


@cache
def _domains() -> frozenset[str]:
    lines = _FILE.read_text("ascii").splitlines()
    return frozenset(" ".join(line for line in lines if not line.startswith("#")).split())
