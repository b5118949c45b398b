"""Turn the raw path of a request into the path that the router matches, and its parameters back into text.

The ASGI server decodes a path before it can be divided into segments, so that `a%2Fb` becomes two of them. The router
gets a path made from the undecoded octets instead (RFC 3986 2.2 and 2.4: divide first, decode each part once).
"""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from engine.base.errors import ErrorType, Refusal, invalid

MAX_PATH_BYTES: Final = 4096  # the longest that any operation needs: an address of 320 characters, each encoded
_PERCENT: Final = ord("%")  # searching octets for a number is ten times as fast as for octets
_INCOMPLETE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)


def make_routable(scope: MutableMapping[str, Any]) -> None:
    """Set the `path` of an ASGI scope to what `routable` makes of its `raw_path`; raises Refusal as that does."""
    raw: bytes = scope["raw_path"]
    if _PERCENT in raw or len(raw) > MAX_PATH_BYTES or not raw:
        scope["path"] = routable(raw)


def routable(raw: bytes) -> str:
    """Return the path with each segment decoded once, and with `%25` and `%2F` for a `%` or `/` within a segment.

    Raises Refusal: 404 for a path that nothing can be at (not percent-encoded UTF-8, or longer than any that exists),
    400 for a request target without a path.
    """
    if not raw:
        raise invalid("path", "The request target has no path. Send one that begins with `/`.")
    if len(raw) > MAX_PATH_BYTES:
        raise _nothing_here(f"it has more than {MAX_PATH_BYTES} bytes.")
    if incomplete := _INCOMPLETE.search(raw):
        shown = incomplete[0].decode("ascii", "replace")
        raise _nothing_here(f"`{shown}` is not a percent-encoded octet. Write `%25` for `%`.")
    try:
        return b"/".join([_decoded(part) if _PERCENT in part else part for part in raw.split(b"/")]).decode("utf-8")
    except UnicodeDecodeError:
        raise _nothing_here("decoded, it is not UTF-8.") from None


def parameters(matched: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parameters that the router matched in a path of `routable`, as plain text."""
    return {name: _plain(text) for name, text in matched.items()}


def _plain(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%") if "%" in text else text


def _decoded(segment: bytes) -> bytes:
    return unquote_to_bytes(segment).replace(b"%", b"%25").replace(b"/", b"%2F")


def _nothing_here(why: str) -> Refusal:
    return Refusal(ErrorType.NOT_FOUND, f"No such path: {why}")
