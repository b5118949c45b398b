"""Suggest the known name that a misspelt one probably means, for error messages."""

import difflib
from collections.abc import Iterable

MAX_NAME = 100  # longest name in characters that is compared: the comparison takes quadratic time


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, or None if none is close.

    Case, hyphens and underscores are ignored: `reply_to` and `Reply-To` are close to `replyTo`.
    """
    by_plain = {_plain(one): one for one in known}
    if len(name) > MAX_NAME:
        return None
    found = difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=0.75)
    return by_plain[found[0]] if found else None


def hint(name: str, known: Iterable[str]) -> str:
    """Return the sentence ` Did you mean X?`, or "" if no known name is close."""
    found = nearest(name, known)
    return "" if found is None else f" Did you mean `{found}`?"


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
