"""Define the Redis client that the rest of the service uses, and its simplest form: one server."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from redis.exceptions import MasterDownError, NoScriptError, ReadOnlyError, RedisError

from engine.store.redis_errors import RedisRefused, RedisUnavailable
from engine.store.redis_node import Node, RedisCommand, Word
from engine.store.redis_subscription import Subscription

PING = RedisCommand(None, ("PING",))


class RedisClient(ABC):
    """The interface to Redis for the rest of the service, whatever the topology; lives as long as the process."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    async def ask(self, commands: Sequence[RedisCommand], *, timeout_s: float | None = None) -> list[Any]:
        """Return the replies to the commands, in order, after one round trip to each server concerned.

        The reply to a rejected command is RedisRefused, to one whose server does not respond RedisUnavailable; raises
        RedisUnavailable if no server responds. A script that a server does not know is sent again with its text.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        answers = await self._ask(commands, limit_s)
        refused = [at for at, answer in enumerate(answers) if isinstance(answer, RedisError)]
        if refused:
            await self._send_unknown_scripts(commands, answers, refused, limit_s)
            for at in refused:
                if isinstance(answers[at], RedisError):
                    answers[at] = RedisRefused(str(answers[at]))
        return answers

    async def _send_unknown_scripts(
        self, commands: Sequence[RedisCommand], answers: list[Any], refused: Sequence[int], timeout_s: float
    ) -> None:
        unknown = [at for at in refused if isinstance(answers[at], NoScriptError)]
        if unknown:
            again = await self._ask([_with_text(commands[at]) for at in unknown], timeout_s)
            for at, answer in zip(unknown, again, strict=True):
                answers[at] = answer

    async def one(self, *words: Word, key: str | None = None) -> Any:
        """Return the reply to one command. Raises RedisUnavailable or RedisRefused."""
        [answer] = await self.ask((RedisCommand(key, words),))
        if isinstance(answer, RedisRefused | RedisUnavailable):
            raise answer
        return answer

    @abstractmethod
    async def ping(self) -> None:
        """Raise RedisUnavailable if a server that this process needs does not respond."""

    @abstractmethod
    async def pubsub(self) -> Subscription:
        """Return a subscription on a server that gets the publications of all processes. Raises RedisUnavailable."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Return a number that changes when earlier subscriptions may no longer receive messages."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every connection."""

    @abstractmethod
    async def _ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]: ...


class SingleRedis(RedisClient):
    """A client of one server, or of a host name whose server may change."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._node = Node(url)

    @property
    def generation(self) -> int:
        """Return 0: the server does not change."""
        return 0

    async def ping(self) -> None:
        """Raise RedisUnavailable if the server does not respond."""
        await self._node.ask((PING,), self._timeout_s)

    async def pubsub(self) -> Subscription:
        """Return a subscription on the server."""
        return self._node.pubsub()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._node.aclose()

    async def _ask(self, commands: Sequence[RedisCommand], timeout_s: float) -> list[Any]:
        answers = await self._node.ask(commands, timeout_s)
        if any(is_demoted(answer) for answer in answers):
            await self._node.drop()  # the name may now resolve to another server
        return answers


def is_demoted(answer: object) -> bool:
    """Return True for the reply of a server that accepts no writes, because it is a replica or has lost its primary."""
    return isinstance(answer, ReadOnlyError | MasterDownError)


def _with_text(command: RedisCommand) -> RedisCommand:
    assert command.text is not None
    return RedisCommand(command.key, ("EVAL", command.text, *command.words[2:]))
