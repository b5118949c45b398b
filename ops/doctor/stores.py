"""Checks of the PostgreSQL and Redis servers behind the two URLs: version, role, availability. They only read."""

import asyncio
from typing import Any

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from msgspec import Struct

from engine.base.redis_url import RedisServers, RedisTopology, parse
from engine.base.settings import BadSetting, Settings, variable
from engine.store import redis as redis_store
from engine.store.postgres_hosts import hosts_of, url_without_hosts
from ops.doctor import redis_sentinels
from ops.doctor.finding import DoctorFinding, bad, describe_error, good

TIMEOUT_S = 5.0
_HARMLESS = "Until then, mail is accepted and delivered some seconds later."
_INFO = ("INFO", "server", "replication", "memory", "cluster")


async def postgres_servers(settings: Settings) -> list[DoctorFinding]:
    """Check that exactly one PostgreSQL server of a URL with several takes writes."""
    assert settings.database_url is not None
    hosts = hosts_of(settings.database_url)
    if len(hosts) < 2:
        return []
    url = url_without_hosts(settings.database_url)
    states = await asyncio.gather(*[_postgres_state(url, host) for host in hosts])
    found = ", ".join(f"{host}:{port} {state}" for (host, port), state in zip(hosts, states, strict=True))
    primaries = states.count("primary")
    if primaries != 1:
        mend = (
            "Promote one replica." if primaries == 0 else ("Stop the previous primary, and let it follow the new one.")
        )
        return [bad("postgres servers", found, mend)]
    if any(state.startswith("unavailable") for state in states):
        return [
            bad(
                "postgres servers",
                found,
                f"Start the unavailable server, or remove it from {variable('database_url')}.",
            )
        ]
    return [good("postgres servers", found)]


async def _postgres_state(url: str, host: tuple[str, str]) -> str:
    try:
        connection = await asyncpg.connect(
            url,
            host=host[0],
            port=host[1],
            timeout=TIMEOUT_S,
            command_timeout=TIMEOUT_S,
            target_session_attrs=SessionAttribute.any,
        )
        try:
            follows = await connection.fetchval("SELECT pg_is_in_recovery()")
        finally:
            connection.terminate()
    except Exception as error:  # noqa: BLE001 - any error of an operator's server is the finding
        return f"unavailable ({describe_error(error)})"
    return "replica" if follows else "primary"


class _RedisState(Struct):
    """State of one Redis server: the fields of INFO, or in `away` why it is unavailable."""

    name: str
    facts: dict[str, str] | None
    away: str = ""
    too_old: bool = False

    @property
    def primary(self) -> bool:
        return self.facts is not None and self.facts.get("role") == "master"


async def redis(settings: Settings) -> list[DoctorFinding]:
    """Check versions, roles and the eviction policy of the Redis servers."""
    assert settings.redis_url is not None
    servers = parse(settings.redis_url)
    found, urls = [], servers.urls
    if servers.kind is RedisTopology.SENTINEL:
        finding, watched = await redis_sentinels.sentinels(servers, TIMEOUT_S)
        found, urls = [finding], tuple(watched)
        if not urls:
            return found
    seen = await asyncio.gather(*[_redis_state(url) for url in urls])
    answering = [one for one in seen if one.facts is not None]
    for one in seen:
        if one.too_old:
            problem, _, mend = one.away.partition(". ")
            return [bad("redis", problem, mend)]
    if not answering:
        mend = (
            f"Check {variable('redis_url')} if it is set, otherwise read {settings.state}/log/valkey.log. Then start"
            f" the server. {_HARMLESS}"
        )
        return [*found, bad("redis", f"does not answer ({seen[0].away})", mend)]
    found.append(_version(answering))
    found += (
        [await _clustered(settings.redis_url, answering)]
        if servers.kind is RedisTopology.CLUSTER
        else [_roles(servers, seen)]
    )
    return [*found, _policy(answering)]


async def _redis_state(url: str) -> _RedisState:
    name = url.rpartition("@")[2].partition("?")[0].removeprefix("redis://").removeprefix("rediss://")
    try:
        client = redis_store.connect(url, timeout_s=TIMEOUT_S)
    except BadSetting as error:
        return _RedisState(name, None, str(error))
    try:
        answer = await client.one(*_INFO)
        lines = answer.decode("utf-8", "replace").splitlines()
        return _RedisState(name, dict(line.partition(":")[::2] for line in lines))
    except redis_store.RedisTooOld as error:
        return _RedisState(name, None, str(error), too_old=True)
    except Exception as error:  # noqa: BLE001 - any error of an operator's URL or server is the finding
        return _RedisState(name, None, describe_error(error))
    finally:
        await client.aclose()


def _version(answering: list[_RedisState]) -> DoctorFinding:
    versions = {
        f"Valkey {_fact(one, 'valkey_version')}"
        if one.facts and "valkey_version" in one.facts
        else f"Redis {_fact(one, 'redis_version')}"
        for one in answering
    }
    return good("redis", f"answers, {', '.join(sorted(versions))}")


def _roles(servers: RedisServers, seen: list[_RedisState]) -> DoctorFinding:
    found = ", ".join(f"{one.name} {_role(one)}" for one in seen)
    check = "redis servers"
    if any(one.facts is not None and one.facts.get("cluster_enabled") == "1" for one in seen):
        return bad(
            check, f"{found}: it is part of a cluster", f"Use the scheme redis+cluster:// in {variable('redis_url')}."
        )
    primaries = sum(one.primary for one in seen)
    if primaries == 0:
        return bad(
            check,
            found,
            f"Promote one server (REPLICAOF NO ONE), or add the primary to {variable('redis_url')}. {_HARMLESS}",
        )
    if primaries > 1:
        return bad(check, found, "Make the previous primary follow the other (REPLICAOF host port).")
    if any(one.facts is None for one in seen):
        return bad(check, found, f"Start the unavailable server, or remove it from {variable('redis_url')}.")
    return good(check, "one server, which accepts writes" if servers.kind is RedisTopology.SINGLE else found)


async def _clustered(url: str, answering: list[_RedisState]) -> DoctorFinding:
    check = "redis cluster"
    if any(one.facts is not None and one.facts.get("cluster_enabled") != "1" for one in answering):
        return bad(
            check,
            "a server of the URL is not part of a cluster",
            f"Name only cluster nodes in {variable('redis_url')}.",
        )
    client = redis_store.connect(url, timeout_s=TIMEOUT_S)
    try:
        await client.ping()
    except redis_store.RedisUnavailable as error:
        mend = f"Start the missing servers, or promote their replicas (CLUSTER FAILOVER FORCE). {_HARMLESS}"
        return bad(check, str(error), mend)
    finally:
        await client.aclose()
    return good(check, "all slots have a primary that answers")


def _policy(answering: list[_RedisState]) -> DoctorFinding:
    policies = sorted({_fact(one, "maxmemory_policy") for one in answering})
    found = f"maxmemory-policy {', '.join(policies)}"
    if policies != ["noeviction"]:
        return bad(
            "redis memory", found, "Set maxmemory-policy to noeviction. Otherwise Redis may evict streams of hints."
        )
    return good("redis memory", found)


def _role(one: _RedisState) -> str:
    if one.facts is None:
        return f"unavailable ({one.away})"
    return "primary" if one.primary else "replica"


def _fact(one: _RedisState, name: str) -> Any:
    return (one.facts or {}).get(name, "unknown").strip()
