"""The run of a bench: its progress, its services, its report folder, and the result that it returns."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from engine.base.settings import Settings
from loadtests.bench.report import Row, Say
from loadtests.bench.service import BenchService, ServiceKind, own_service


class BenchResult(Struct, frozen=True):
    """The figures of a bench, as JSON shows them, and the rows that people read.

    `figures["checked"]` is False when a check failed: then the figures say nothing about speed.
    """

    figures: dict[str, Any]
    rows: Sequence[Row]


class BenchRun(Struct, frozen=True):
    """The settings of the operator, where progress goes, and the folder for flame graphs if they are wanted."""

    given: Settings
    say: Say
    folder: Path | None = None

    def service(
        self, changed: Mapping[str, Any] | None = None, kind: ServiceKind | None = None
    ) -> AbstractAsyncContextManager[BenchService]:
        """Start a separate service with the `changed` settings; see `own_service` for the rest."""
        self.say("Starting a separate service")
        return own_service(structs.replace(self.given, **(changed or {})), self.say, kind or ServiceKind())
