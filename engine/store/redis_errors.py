"""Define the exceptions of Redis access, and translate those of the client library to them in one place."""

from typing import Final

from redis.exceptions import RedisError

from engine.store.cancellation import raise_if_cancelled


class RedisUnavailable(Exception):  # noqa: N818 - names a state
    """Redis, or the server that holds a key, does not respond: continue without it."""


class RedisTooOld(RedisUnavailable):
    """The server is older than Waybill needs, so no command was sent to it; the text says what to do."""


class RedisRefused(Exception):  # noqa: N818 - names what happened
    """The server replied to a command with an error; the text is the server's."""


# What the client library raises, and the sockets and time-outs below it (TimeoutError is an OSError).
CLIENT_ERRORS: Final = (RedisError, OSError)


def unavailable(error: Exception, server: str) -> RedisUnavailable:
    """Return the exception to raise for one of CLIENT_ERRORS. `server` is its address, for the text.

    Raises CancelledError instead if the task is being cancelled.
    """
    raise_if_cancelled(error)
    return RedisUnavailable(f"{server}: {type(error).__name__} {error}")
