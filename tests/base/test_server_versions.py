"""Servers that are too old are refused in a sentence that says what was found, what is needed and what to do."""

import pytest

from engine.base.server_versions import UnsupportedServer, check_postgres, check_redis


@pytest.mark.parametrize(("major", "minor"), [(15, 0), (15, 20), (16, 1), (18, 6), (19, 0)])
def test_postgresql_from_15_is_accepted(major: int, minor: int) -> None:
    check_postgres(major, minor)


def test_an_older_postgresql_is_refused() -> None:
    with pytest.raises(UnsupportedServer) as refused:
        check_postgres(14, 23)
    assert str(refused.value) == (
        "PostgreSQL 14.23 is too old: Waybill needs PostgreSQL 15 or newer. Upgrade the server, or name a newer one in"
        " WAYBILL_DATABASE_URL."
    )


@pytest.mark.parametrize(
    ("server", "version"),
    [("redis", "7.0.0"), ("redis", "7.4.1"), ("redis", "8.2.3"), ("redis", "10.0"), ("valkey", "7.2.4"),
     ("valkey", "9.1.2"), ("keydb", "7.0.1")],
)  # fmt: skip
def test_redis_from_7_0_and_valkey_from_7_2_are_accepted(server: str, version: str) -> None:
    check_redis(server, version)


@pytest.mark.parametrize(
    ("server", "version", "named"),
    [("redis", "6.2.5", "Redis 6.2.5"), ("redis", "6.3.4", "Redis 6.3.4"), ("redis", "5 or older", "Redis 5 or older"),
     ("valkey", "7.1.0", "Valkey 7.1.0"), ("redis", "", "Redis ")],
)  # fmt: skip
def test_older_ones_are_refused(server: str, version: str, named: str) -> None:
    with pytest.raises(UnsupportedServer) as refused:
        check_redis(server, version)
    assert str(refused.value) == (
        f"{named} is too old: Waybill needs Redis 7.0, Valkey 7.2, or newer. Upgrade the server, or name a newer one in"
        " WAYBILL_REDIS_URL."
    )
