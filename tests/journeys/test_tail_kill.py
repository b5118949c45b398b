"""Readers of the live tail, of several makes, while the workers that serve them are killed: every event once."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from loadtests.drill import tails
from tests.harness.service import running

pytestmark = pytest.mark.journey

EVENTS, KILLS = 3_000, 5


@pytest.mark.exhaustive
@pytest.mark.timeout(170)
async def test_no_event_is_missed_and_none_comes_twice_while_workers_are_killed() -> None:
    makes = {"httpx-sse": with_httpx_sse, "sseclient": with_sseclient, "curl": with_curl, "plain": tails.plain}

    with running(tails.SETTINGS) as service:
        report = await tails.drill(service, events=EVENTS, kills=KILLS, follow=makes)

    assert report.done != ["0 API workers killed"]
    assert [check.found for check in report.checks] == [f"{EVENTS} events, 0 missed, 0 repeated"] * len(makes)
    assert report.passed
    assert report.figures["connections"] > len(makes)


def with_httpx_sse(url: str, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    import httpx
    import httpx_sse

    try:
        with (
            httpx.Client(timeout=40) as client,
            httpx_sse.connect_sse(client, "GET", url, headers=dict(headers)) as source,
        ):
            source.response.raise_for_status()
            for one in source.iter_sse():
                yield one.event, one.id
    except httpx.HTTPError as error:
        raise OSError(str(error)) from error


def with_sseclient(url: str, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    import urllib.request

    import sseclient

    with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=40) as answer:
        for one in sseclient.SSEClient(answer).events():
            yield one.event, one.id or ""


def with_curl(url: str, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    curl = shutil.which("curl")
    assert curl is not None
    words = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    process = subprocess.Popen([curl, "-sSNf", "--max-time", "60", *words, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        fields: dict[str, str] = {}
        for line in process.stdout:
            name, colon, value = line.rstrip("\n").partition(": ")
            if colon:
                fields[name] = value
            elif fields:
                yield fields["event"], fields.get("id", "")
                fields = {}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
