"""What the rest of the service asks Redis through, and the simplest case of it: one server."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from redis.asyncio.client import PubSub
from redis.exceptions import MasterDownError, NoScriptError, ReadOnlyError, RedisError

from engine.store.redis_node import Node, RedisCommand, RedisUnavailable, Word

PING = RedisCommand(None, ("PING",))


class RedisClient(ABC):
    """What the rest of the service asks Redis through."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    async def ask(self, commands: Sequence[RedisCommand], *, timeout_s: float | None = None) -> list[Any]:
        """The commands' answers, in order, after one round trip to each server concerned.

        One that was refused is a RedisError among the answers, one whose server can't be asked is Away. Raises Away
        when that is true of all of them. A script that a server does not know is sent once more with its text.
        """
        patience_s = self._timeout_s if timeout_s is None else timeout_s
        answers = await self._ask(commands, patience_s)
        unknown = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            again = await self._ask([_in_full(commands[at]) for at in unknown], patience_s)
            for at, answer in zip(unknown, again, strict=True):
                answers[at] = answer
        return answers

    async def one(self, *words: Word, key: str | None = None) -> Any:
        """One command's answer; raises Away, or the RedisError that refused it."""
        [answer] = await self.ask((RedisCommand(key, words),))
        if isinstance(answer, RedisError | RedisUnavailable):
            raise answer
        return answer

    @abstractmethod
    async def ping(self) -> None:
        """Raises Away when what this process needs of Redis can't be asked, in whole or in part."""

    @abstractmethod
    async def pubsub(self) -> PubSub:
        """A subscription at a server where publications of all processes are heard. Raises Away."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Changes when a subscription made before may hear nothing any more."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every connection."""

    @abstractmethod
    async def _ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]: ...


class SingleRedis(RedisClient):
    """One server, or a name behind which somebody else changes servers."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._node = Node(url)

    @property
    def generation(self) -> int:
        """There is one server only."""
        return 0

    async def ping(self) -> None:
        """Raises Away when the server does not answer."""
        await self._node.ask((PING,), self._timeout_s)

    async def pubsub(self) -> PubSub:
        """At the server."""
        return self._node.pubsub()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._node.aclose()

    async def _ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]:
        answers = await self._node.ask(commands, timeout_s)
        if any(is_demoted(answer) for answer in answers):
            await self._node.drop()  # the name may stand for another server by now
        return answers


def is_demoted(answer: object) -> bool:
    """True for the word of a server that takes no writes: it follows another one, or has lost it."""
    return isinstance(answer, ReadOnlyError | MasterDownError)


def _in_full(command: RedisCommand) -> RedisCommand:
    assert command.text is not None
    return RedisCommand(command.key, ("EVAL", command.text, *command.words[2:]))
