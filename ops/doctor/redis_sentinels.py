"""Check the sentinels of `WAYBILL_REDIS_URL`: how many answer, whom they name, and whether they could fail over."""

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.base.redis_url import RedisServers
from engine.base.settings import variable
from engine.store import redis as redis_store
from engine.store.redis_sentinel import WatchedPrimary, latest, read_watched
from ops.doctor.finding import DoctorFinding, bad, describe_error, good

_CHECK = "redis sentinels"
_DOWN = ("o_down", "s_down")


async def sentinels(servers: RedisServers, timeout_s: float) -> tuple[DoctorFinding, list[str]]:
    """Return what the sentinels say, and the URLs of the servers that they watch: the primary first."""
    answers = await asyncio.gather(*[_primary(url, servers.primary_name, timeout_s) for url in servers.urls])
    named = latest(answers)
    if named is None:
        why = "; ".join(dict.fromkeys(one for one in answers if isinstance(one, str)))
        mend = f"Start the sentinels, or check the names and passwords in {variable('redis_url')}."
        return bad(_CHECK, f"none names a primary {servers.primary_name} ({why})", mend), []
    replicas = await asyncio.gather(*[_replicas(url, servers.primary_name, timeout_s) for url in servers.urls])
    addresses = dict.fromkeys([_address(named), *max(replicas, key=len)])
    return _judged(servers.primary_name, named, answers), [servers.watched_url(one) for one in addresses]


def _judged(name: str, named: WatchedPrimary, answers: Sequence[WatchedPrimary | str]) -> DoctorFinding:
    there = [one for one in answers if isinstance(one, WatchedPrimary)]
    found = (
        f"{len(there)} of {len(answers)} answer, quorum {named.quorum}, {name} is {_address(named)} with"
        f" {named.replicas} replicas"
    )
    needed = max(named.quorum, named.sentinels // 2 + 1)
    if len({_address(one) for one in there}) > 1:
        others = ", ".join(sorted({_address(one) for one in there} - {_address(named)}))
        return bad(_CHECK, f"{found}; some still name {others}", "Restore the network between the sentinels.")
    if any(flag in named.flags.split(",") for flag in _DOWN):
        return bad(_CHECK, f"{found}, which does not answer ({named.flags})", "Wait for the failover, or start it.")
    if len(there) < needed:
        mend = f"Start the other sentinels: {needed} of the {named.sentinels} that know each other must agree."
        return bad(_CHECK, f"{found}; they can't fail over", mend)
    if len(there) < len(answers):
        return bad(_CHECK, found, f"Start the unavailable sentinels, or remove them from {variable('redis_url')}.")
    if not named.replicas:
        return bad(_CHECK, found, "Add a replica: there is no server to fail over to.")
    return good(_CHECK, found)


async def _primary(url: str, name: str, timeout_s: float) -> WatchedPrimary | str:
    answer = await _asked(url, timeout_s, "SENTINEL", "MASTER", name)
    return answer if isinstance(answer, str) else read_watched(answer)


async def _replicas(url: str, name: str, timeout_s: float) -> list[str]:
    answer = await _asked(url, timeout_s, "SENTINEL", "REPLICAS", name)
    if isinstance(answer, str):
        return []
    seen = [read_watched(one) for one in answer]
    return sorted(_address(one) for one in seen if isinstance(one, WatchedPrimary))


async def _asked(url: str, timeout_s: float, *words: str) -> Any:
    """Return the reply of one sentinel, or as text why there is none."""
    client = redis_store.connect(url, timeout_s=timeout_s)
    try:
        return await client.one(*words)
    except Exception as error:  # noqa: BLE001 - any error of an operator's URL or server is the finding
        return describe_error(error)
    finally:
        await client.aclose()


def _address(one: WatchedPrimary) -> str:
    host = f"[{one.host}]" if ":" in one.host else one.host
    return f"{host}:{one.port}"
