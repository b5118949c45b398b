"""`ops bench --unsubscribe RATE`: the time of one-click posts to links of one account, at RATE a second.

Each link belongs to a person of its own, so that every post locks the same account head and writes. A second phase
posts to the same links again, which changes nothing.
"""

import os
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from engine.base import ids, settings
from engine.mail import unsubscribe_token
from engine.store.queries import Queries
from loadtests.bench import figures, measure, past_broadcasts, report
from loadtests.bench.load import LoadOrder, LoadProcess, LoadResult, times_of
from loadtests.bench.one_result import run_measurement
from loadtests.bench.run_control import BenchFailed
from loadtests.bench.service import BenchService, own_service
from loadtests.bench.unsubscribe_load import UnsubscribeTarget

GENERATOR: Final = "loadtests.bench.unsubscribe_load"
PHASE_S: Final = 15.0
WARM_UP_S: Final = 3.0
CONNECTIONS: Final = 64
MARK_MS: Final = 20.0  # p99 of a post that suppresses
_CHUNK: Final = 10_000
_PATIENCE_S: Final = 120.0
_SQL = Queries.beside(__file__, "unsubscribe.sql")
_STORE = _SQL.command("store_links")
_OPTED_OUT = _SQL.command("opted_out")


def run(*, rate: float, past: int, as_json: bool) -> int:
    """Measure and print; return exit status 0 when each person is suppressed once and the mark was met.

    `past`: ended broadcasts that are stored before (past_broadcasts.store).
    """
    return run_measurement(lambda progress: _measure(rate, past, progress), as_json=as_json)


async def _measure(rate: float, past: int, progress: report.Progress) -> dict[str, Any]:
    given = msgspec.structs.replace(settings.load(os.environ).settings, processes=("api",), api_workers=1)
    warm, count = round(rate * WARM_UP_S), round(rate * PHASE_S)
    async with own_service(given, progress.say, delivering=True, tls=False) as service:
        await past_broadcasts.store(service, past)
        roots = measure.roots_by_role(service.pids())
        target = await _target(service, [ids.uuid7() for _ in range(warm + count)])
        async with LoadProcess(GENERATOR, target, service.settings.state / "unsubscribe.log") as posts:
            progress.say(f"Posting to {warm + count:,} links at {rate:,.0f} a second")
            await _post(posts, 0, warm, rate)
            before = measure.sample(roots)
            first = await _post(posts, warm, count, rate)
            usage = figures.usage(before, measure.sample(roots), count)
            progress.say("Posting to them again")
            again = await _post(posts, warm, count, rate)
        [row] = await _OPTED_OUT.records(service.pool, service.access.account_id)
        deaths = service.deaths()
    exact = row["suppressed"] == row["events"] == warm + count
    return {
        "mode": "unsubscribe", "past": past, "posts_per_s": rate, "posts": count, "post_ms": first,
        "repeated_post_ms": again, "cpu_ms_by_role": usage["cpu_ms_by_role"], "links": warm + count,
        "suppressed": row["suppressed"], "events": row["events"], "deaths": deaths,
        "checked": exact and not deaths and first["p99"] <= MARK_MS,
    }  # fmt: skip


async def _target(service: BenchService, links: Sequence[UUID]) -> UnsubscribeTarget:
    """Store the links, and write their tokens to a file for the posting process."""
    config = service.settings
    for at in range(0, len(links), _CHUNK):
        await _STORE.execute(service.pool, service.access.account_id, links[at : at + _CHUNK])
    key = unsubscribe_token.key_of(config.pepper)
    file = config.state / "tokens.json"
    file.write_bytes(msgspec.json.encode([unsubscribe_token.token(key, link) for link in links]))
    return UnsubscribeTarget(
        host=config.api_host, port=config.api_port, tokens=str(file), connections=CONNECTIONS, folder=str(config.state)
    )


async def _post(posts: LoadProcess, first: int, count: int, rate: float) -> dict[str, float]:
    found: LoadResult = await posts.send(LoadOrder(first=first, count=count, rate=rate, timeout_s=_PATIENCE_S))
    if found.refused:
        raise BenchFailed(f"Not every post was answered 200: {found.refused}\n{found.example}")
    return figures.percentiles(times_of(found)[0]) or {}
