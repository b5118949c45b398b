"""Serve the metrics of all processes of this host on a separate port.

The worker serves them itself; hosts without a worker run this module as the `metrics` process.
"""

import asyncio
import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Exemplar, Sample

from engine.base.settings import Settings, load
from engine.store import exemplars, socket_activation, stopping


@contextmanager
def shown(settings: Settings) -> Iterator[None]:
    """Serve `/metrics` from a separate thread until the context ends."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry.register(ExemplarCollector())
    server, thread = start_http_server(settings.metrics_port, addr=settings.api_host, registry=registry)
    try:
        yield
    finally:
        server.shutdown()
        thread.join(5)


class ExemplarCollector:
    """Collects the metrics of all processes, with exemplars, which are shown to readers of OpenMetrics alone."""

    def __init__(self) -> None:
        self._folder = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
        self._summed = MultiProcessCollector(None)  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        found: dict[str, list[exemplars.Exemplar]] = {}
        for one in sorted(exemplars.read(self._folder), key=lambda one: one.at):
            found.setdefault(one.histogram, []).append(one)
        for metric in self._summed.collect():  # type: ignore[no-untyped-call]
            if metric.name in found:
                metric.samples = _with_exemplars(metric.samples, found[metric.name])
            yield metric


def _with_exemplars(samples: list[Sample], found: list[exemplars.Exemplar]) -> list[Sample]:
    """Return the samples of a histogram, each bucket with the last exemplar that fell into it."""
    bounds = sorted({float(one.labels["le"]) for one in samples if "le" in one.labels})
    chosen = {(one.label_value, bounds[bisect_left(bounds, one.seconds)]): one for one in found if bounds}
    made = []
    for sample in samples:
        one, exemplar = None, None
        if "le" in sample.labels and found:
            one = chosen.get((sample.labels.get(found[0].label, ""), float(sample.labels["le"])))
        if one is not None:
            exemplar = Exemplar({"trace_id": one.trace_id}, one.seconds, one.at)
        made.append(sample if exemplar is None else sample._replace(exemplar=exemplar))
    return made


async def run(settings: Settings, stop: asyncio.Event | None = None) -> None:
    """Serve until `stop` is set (default: at SIGTERM or SIGINT)."""
    stop = stop or stopping.stop_event()
    with shown(settings):
        socket_activation.tell_ready()
        await stop.wait()


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    asyncio.run(run(load(os.environ).settings))


if __name__ == "__main__":
    main()
