"""Keep a trace for each bucket of the histograms of latency, which the metrics show beside it (exemplars).

prometheus-client has none where several processes share their values. Each process keeps the last one of a bucket and
writes them once a second, beside its values, to a file that the server of the metrics reads.
"""

import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Final

import msgspec
from msgspec import Struct

from engine.base import trace_context
from engine.store.metrics import SECONDS

SUFFIX: Final = ".exemplars"
MAX_AGE_S: Final = 3_600.0  # of a file: its process has ended, or traces are off since


class Exemplar(Struct, frozen=True):
    """The trace of one observation of a histogram with one label."""

    histogram: str
    label: str
    label_value: str
    seconds: float
    trace_id: str
    at: float  # Unix time


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(list[Exemplar])


class KeptExemplars:
    """The last exemplar of each bucket in this process; lives as long as the process."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, int], Exemplar] = {}
        self._is_written = True

    def keep(self, one: Exemplar) -> None:
        """Keep an exemplar in place of the one before in its bucket."""
        self._kept[one.histogram, one.label_value, bisect_left(SECONDS, one.seconds)] = one
        self._is_written = False

    def write(self) -> None:
        """Write what is new to the file of this process; called once a second."""
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if self._is_written or folder is None:
            return
        self._is_written = True
        file = Path(folder) / f"{os.getpid()}{SUFFIX}"
        fresh = file.with_suffix(".fresh")
        with suppress(OSError):  # a full disk: metrics lack them, mail does not wait
            fresh.write_bytes(_ENCODER.encode(list(self._kept.values())))
            fresh.replace(file)


KEPT: Final = KeptExemplars()


class TracedHistogram(Struct, frozen=True):
    """A histogram of seconds with one label."""

    name: str
    label: str

    def offer(self, label_value: str, seconds: float, traceparent: str) -> None:
        """Keep the trace of an observation."""
        trace = trace_context.trace_of(traceparent)
        KEPT.keep(Exemplar(self.name, self.label, label_value, seconds, trace, time()))


FLUSHES: Final = TracedHistogram("waybill_flush_seconds", "flow")
STAGES: Final = TracedHistogram("waybill_smtp_stage_seconds", "stage")


def read(folder: Path) -> Iterator[Exemplar]:
    """Yield the exemplars of all processes of the host."""
    for file in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError, msgspec.DecodeError):  # it was removed or replaced meanwhile
            if time() - file.stat().st_mtime < MAX_AGE_S:
                yield from _DECODER.decode(file.read_bytes())
