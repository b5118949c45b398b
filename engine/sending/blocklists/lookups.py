"""Query DNS blocklists, many at once and within a bounded time. Nothing is cached between two rounds of checks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from engine.base.settings import HostPort, Settings
from engine.sending.blocklists.rules import TEST_POINTS, ZoneJudgement, judge_zone, query_name, read_answer
from engine.sending.blocklists.types import ListAnswer, ListToAsk, ListVerdict
from engine.store.resolver import Records, Resolver, TemporaryFailure

QUERY_S: Final = 2.0
LOOKUP_S: Final = 6.0
ROUND_S: Final = 45.0  # all queries of a round together
MAX_AT_ONCE: Final = 20  # lists limit the rate of queries
MAX_ADDRESSES: Final = 10  # A records that are kept of one answer

Addresses = tuple[str, ...] | None  # A records, () if there are none; None if DNS gave no answer


class ListResolver(Resolver):
    """A resolver for one round of checks."""

    def __init__(self, servers: Sequence[HostPort]) -> None:
        super().__init__(servers, query_timeout_s=QUERY_S, budget_s=LOOKUP_S)


@asynccontextmanager
async def resolver_for_round(settings: Settings) -> AsyncIterator[Resolver]:
    """Provide a resolver with the configured servers and an empty cache."""
    resolver = ListResolver.from_settings(settings)
    try:
        yield resolver
    finally:
        await resolver.close()


async def judge(resolver: Resolver, lists: Sequence[ListToAsk]) -> dict[ListToAsk, ZoneJudgement]:
    """Query the test points of each list, and return whether it can be trusted now."""
    names = [query_name(point, one.family, one.zone) for one in lists for point in TEST_POINTS[one.family]]
    answers = await _answers(resolver, names)
    return {
        one: judge_zone(one.family, listed, unlisted)
        for one, listed, unlisted in zip(lists, answers[::2], answers[1::2], strict=True)
    }


async def ask(resolver: Resolver, questions: Sequence[tuple[str, ListToAsk]]) -> list[ListVerdict]:
    """Return the verdict of each list about its target, in the order of the questions; UNKNOWN without an answer."""
    answers = await _answers(resolver, [query_name(target, one.family, one.zone) for target, one in questions])
    return [_verdict(target, one, answer) for (target, one), answer in zip(questions, answers, strict=True)]


def _verdict(target: str, asked: ListToAsk, answer: Addresses) -> ListVerdict:
    meaning = ListAnswer.UNKNOWN if answer is None else read_answer(answer)
    text = ", ".join(sorted(answer or ())[:MAX_ADDRESSES])
    return ListVerdict(asked.family.kind, target, asked.name, meaning, text)


async def _answers(resolver: Resolver, names: Sequence[str]) -> list[Addresses]:
    """Look up the A records of all names, some at a time; None for a name without an answer in time."""
    found: list[Addresses] = [None] * len(names)
    slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def look_up(index: int, name: str) -> None:
        async with slots:
            found[index] = await _addresses(resolver, name)

    with suppress(TimeoutError):
        async with asyncio.timeout(ROUND_S), asyncio.TaskGroup() as tasks:
            for index, name in enumerate(names):
                tasks.create_task(look_up(index, name))
    return found


async def _addresses(resolver: Resolver, name: str) -> Addresses:
    answer = await resolver.addresses(name, "A")
    if isinstance(answer, TemporaryFailure):
        return None
    return answer.values if isinstance(answer, Records) else ()
