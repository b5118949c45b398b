"""The oldest PostgreSQL, Redis and Valkey that Waybill works with, and the sentences that refuse older ones. Pure."""

import re
from typing import Final

OLDEST_POSTGRES: Final = 15
OLDEST_REDIS: Final = (7, 0)
OLDEST_VALKEY: Final = (7, 2)


class UnsupportedServer(RuntimeError):  # noqa: N818 - named for what it says
    """A server is too old; the text says which version it has, which one is needed, and what to do."""


def check_postgres(major: int, minor: int) -> None:
    """Raise UnsupportedServer if PostgreSQL `major.minor` is too old."""
    if major < OLDEST_POSTGRES:
        raise UnsupportedServer(
            f"PostgreSQL {major}.{minor} is too old: Waybill needs PostgreSQL {OLDEST_POSTGRES} or newer. Upgrade the"
            " server, or name a newer one in WAYBILL_DATABASE_URL."
        )


def check_redis(server: str, version: str) -> None:
    """Raise UnsupportedServer if a server that calls itself `server` (`redis`, `valkey`) is too old.

    Forks that call themselves `redis` are measured as Redis, by the version of its protocol that they report.
    """
    oldest = OLDEST_VALKEY if server == "valkey" else OLDEST_REDIS
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < oldest:
        raise UnsupportedServer(
            f"{'Valkey' if server == 'valkey' else 'Redis'} {version} is too old: Waybill needs Redis"
            f" {_dotted(OLDEST_REDIS)}, Valkey {_dotted(OLDEST_VALKEY)}, or newer. Upgrade the server, or name a newer"
            " one in WAYBILL_REDIS_URL."
        )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
