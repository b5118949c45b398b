"""Derive the synchronous modules of the Python client from the asynchronous ones, by replacing words. Pure."""

import re
from typing import Final

_REPLACED: Final = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\basync (def|for|with)\b", r"\1"),
        (r"\bawait ", ""),
        (r"\bAwaitable\[(\w+)\]", r"\1"),
        (r"\bAwaitable, ", ""),
        (r"\basyncio\b", "time"),
        (r"\bhttpx\.Async(\w+)", r"httpx.\1"),
        (r"\bAsync([A-Z]\w*)", r"\1"),
        (r"\basync_(\w+)", r"\1"),
        (r"\b__a(enter|exit|iter)__", r"__\1__"),
        (r"\ba(read|close|iter_bytes)\(", r"\1("),
    )
)


def derived(source: str) -> str:
    """Return the synchronous form of a module. Class and file names lose their `Async` and `async_`."""
    for pattern, text in _REPLACED:
        source = pattern.sub(text, source)
    return source
