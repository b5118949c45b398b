"""List all benches: `ops bench` takes their names and their help from here.

To add a bench, write a frozen Struct with a field for each option that it takes and a coroutine method
`measure(run: BenchRun) -> BenchResult` (`loadtests.bench.run`), add an entry below, and add a new option to
`loadtests/commands/bench.py`. A bench starts its service by `run.service` and prints nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from loadtests.bench.run import BenchResult, BenchRun


class ChosenBench(Protocol):
    """A bench with its options."""

    async def measure(self, run: "BenchRun") -> "BenchResult":
        """Measure on a separate service."""


class Bench(Struct, frozen=True):
    """A bench. `where` names its Struct as `module:class`, so that listing benches does not import them."""

    name: str
    about: str  # one sentence, from a capital to a full stop
    where: str

    @property
    def options(self) -> tuple[str, ...]:
        """Return the names of its options."""
        fields: tuple[str, ...] = self._struct().__struct_fields__
        return fields

    def with_options(self, given: dict[str, Any]) -> ChosenBench:
        """Return the bench with the given options, and the defaults of the others."""
        made: ChosenBench = self._struct()(**given)
        return made

    def _struct(self) -> Any:
        module, _, name = self.where.partition(":")
        return getattr(importlib.import_module(module), name)


DEFAULT: Final = "send"
LIST: Final = "list"
CATALOGUE: Final = (
    Bench("send", "Messages are accepted over HTTP, delivered and settled.", "loadtests.bench.send:SendBench"),
    Bench(
        "provider",
        "A queue of mail for one distant provider is delivered.",
        "loadtests.bench.provider:ProviderBench",
    ),
    Bench("relay", "Messages are accepted over SMTP and, in turns, over HTTP.", "loadtests.bench.relay:RelayBench"),
    Bench("mx", "Signed messages are received, judged and stored.", "loadtests.bench.inbound:InboundBench"),
    Bench(
        "webhooks",
        "Events are posted to endpoints, without and with other endpoints that never answer.",
        "loadtests.bench.webhooks:WebhookBench",
    ),
    Bench("tails", "Live tails are open, first idle, then with events.", "loadtests.bench.tails:TailBench"),
    Bench(
        "broadcast",
        "A broadcast is sent to many contacts, with single messages meanwhile.",
        "loadtests.bench.broadcast:BroadcastBench",
    ),
    Bench("growth", "Messages are sent and lists read beside many stored rows.", "loadtests.bench.growth:GrowthBench"),
    Bench("console", "The web console is used in Chromium.", "loadtests.bench.console:ConsoleBench"),
)


def named(name: str) -> Bench:
    """Return the bench of this name; raises KeyError."""
    return {bench.name: bench for bench in CATALOGUE}[name]


def names() -> list[str]:
    """Return the names of all benches."""
    return [bench.name for bench in CATALOGUE]
