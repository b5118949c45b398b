"""Exceptions that callers of Redis see, and the one place that makes them from the client library's."""

from typing import Final

from redis.exceptions import RedisError

from engine.store.cancellation import raise_if_cancelled


class RedisUnavailable(Exception):  # noqa: N818 - names a state
    """Redis, or the server that keeps a key, does not answer: go on without its hint."""


class RedisRefused(Exception):  # noqa: N818 - names what happened
    """The server answered a command with an error; the text is the server's."""


# What the client library raises, and the sockets and time-outs below it (TimeoutError is an OSError).
CLIENT_ERRORS: Final = (RedisError, OSError)


def unavailable(error: Exception, server: str) -> RedisUnavailable:
    """Return our exception for one of CLIENT_ERRORS, to be raised from it. `server`: its address, for the text.

    Raises CancelledError instead where the task is being cancelled.
    """
    raise_if_cancelled(error)
    return RedisUnavailable(f"{server}: {type(error).__name__} {error}")
