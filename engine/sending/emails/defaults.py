"""Values that stand for fields which a send request leaves out."""

from typing import Final

from engine.sending.emails.types import MinTls, SendRequest

DEFAULT_STREAM: Final = "transactional"


def stream_of(request: SendRequest) -> str:
    """Return the stream named in the request, or the default stream."""
    return request.stream or DEFAULT_STREAM


def min_tls_to_store(asked: MinTls | None) -> MinTls | None:
    """Return `minTls` as it is stored: None for `opportunistic`, which is the default."""
    return None if asked == "opportunistic" else asked
