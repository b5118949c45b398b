"""`ops bench`: its check, its load generator, and its cleanup.

No test looks at a speed: machines differ, and this one is shared.
"""

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.base.settings import PREFIX, Settings
from engine.store.sink_folder import INDEX
from loadtests.bench import catalogue, check, command, figures, measure, report
from loadtests.bench.load import HTTP_GENERATOR, LoadOrder, LoadProcess, LoadTarget, times_of
from loadtests.bench.measure import RoleUsage, UsageSample
from loadtests.bench.service import BenchService, ServiceKind, own_service
from loadtests.commands.bench import bench
from tests.harness.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = {"idle_s", "paced_s", "learning_s", "quiet_s", "busy_s"}  # of a bench's parts, shorter in tests
ACCEPTED = b'{"id":"msg_1","status":"queued"}'


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a temporary folder for a bench in a separate process, to look for leftovers."""
    folder = Path(tempfile.mkdtemp(prefix="wbt-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def start_bench(temporary: Path, **options: object) -> subprocess.Popen[str]:
    script = (
        "import json, sys; from loadtests.bench.command import run;"
        "sys.exit(run('send', json.loads(sys.argv[1]), as_json=True))"
    )
    environ = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    return subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(options)],
        cwd=ROOT, env=environ | {"TMPDIR": str(temporary)}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes with the folder in their environment or arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            known = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            if str(folder).encode() in known and int(process.name) != os.getpid():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.exhaustive
@pytest.mark.journey
def test_a_small_bench_checks_itself_and_reports_every_figure(temporary: Path) -> None:
    with start_bench(temporary, messages=200, warm_up=20, paced=False) as bench:
        out, err = bench.communicate(timeout=100)
    assert bench.returncode == 0, out + err
    result = json.loads(out)

    assert result["checked"]
    assert all(finding["ok"] for finding in result["checks"])
    assert len(result["checks"]) == 8
    for figure in ("accepted_per_s", "delivered_per_s", "server_cpu_ms_per_message", "signature_ms"):
        assert result[figure] > 0
    assert result["cost_in_signatures"] == pytest.approx(
        result["server_cpu_ms_per_message"] / result["signature_ms"], rel=0.01
    )
    for by_role in ("cpu_ms_by_role", "rss_mb_by_role", "context_switches_by_role"):
        assert set(result[by_role]) == {*measure.SERVER_ROLES, *measure.OUTSIDE_ROLES}
    assert result["flush"]["accept"]["flushes"] > 0
    assert set(result["at_full_rate"]["accept_ms"]) == {"p50", "p95", "p99"}
    assert result["accept_ms"] is None
    assert list(temporary.glob("waybill-bench-*")) == []
    assert processes_of(temporary) == []


@pytest.mark.exhaustive
@pytest.mark.journey
def test_an_interrupted_bench_leaves_nothing_behind(temporary: Path) -> None:
    with start_bench(temporary, messages=100_000, warm_up=20) as bench:
        assert bench.stderr is not None
        while line := bench.stderr.readline():
            if line.startswith("Measuring"):
                break
        assert list(temporary.glob("waybill-bench-*"))
        assert len(processes_of(temporary)) > 5
        bench.send_signal(signal.SIGINT)
        assert bench.wait(PATIENCE_S) == 130

    assert list(temporary.glob("waybill-bench-*")) == []
    assert processes_of(temporary) == []


@pytest.mark.exhaustive
@pytest.mark.journey
async def test_the_check_finds_lost_duplicated_and_changed_messages(tmp_path: Path) -> None:
    async with own_service(
        Settings(mta_workers=1), print, ServiceKind(delivering=False, tls=True, rsa=True)
    ) as service:
        signing = await service.pool.fetch("SELECT algorithm FROM domain_keys WHERE status = 'active'")
        assert [key["algorithm"] for key in signing] == ["rsa-sha256"]
        async with LoadProcess(
            HTTP_GENERATOR, service.target(connections=4, domains=3), tmp_path / "generator.log"
        ) as generator:
            load = await generator.send(LoadOrder(first=0, count=30, timeout_s=PATIENCE_S))
        assert (load.accepted, load.refused) == (30, {})
        assert await service.anything_queued()
        assert "no queue row is left" in await complaints(service)

        await service.start_delivery()
        async with asyncio.timeout(PATIENCE_S):
            while await service.anything_queued():
                await asyncio.sleep(0.05)
        assert await complaints(service) == {}

        index = service.sink_folder / INDEX
        whole = index.read_bytes()
        lines = whole.splitlines(keepends=True)
        index.write_bytes(b"".join(lines[1:]))
        assert "1 lost" in (await complaints(service))["every accepted message reached the sink once"]
        index.write_bytes(whole + lines[0])
        assert "1 twice" in (await complaints(service))["every accepted message reached the sink once"]
        index.write_bytes(whole)

        await service.pool.execute("UPDATE events SET payload = payload || ' ' WHERE seq = 40")
        found = await complaints(service)
        assert list(found) == ["the account log is intact"]
        assert found["the account log is intact"].endswith("broken at 40")

        os.kill(service.pids()["worker"], signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while not service.deaths():
                await asyncio.sleep(0.05)
        assert "no process died" in await complaints(service)


async def complaints(service: BenchService) -> dict[str, str]:
    findings = await check.check(service, check.arrivals(service), set(range(30)))
    return {finding.what: finding.found for finding in findings if not finding.ok}


@asynccontextmanager
async def generating(
    tmp_path: Path, connections: int, *, status: bytes = b"202 Accepted", takes_s: float = 0.0, attached: int = 0
) -> AsyncIterator[tuple[LoadProcess, list[bytes]]]:
    """Run a generator against a server with a fixed answer; yield it and the requests received."""
    bodies: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
                bodies.append(await reader.readexactly(length))
                with suppress(TimeoutError):
                    async with asyncio.timeout(takes_s):
                        await over.wait()
                answer = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                whole = answer % (status, len(ACCEPTED), ACCEPTED)
                writer.write(whole[:40])
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(whole[40:])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        to = LoadTarget(
            host="127.0.0.1", port=server.sockets[0].getsockname()[1], key="k", sender="s@x.test",
            domains=3, connections=connections, folder=str(tmp_path), attached=attached,
        )  # fmt: skip
        async with LoadProcess(HTTP_GENERATOR, to, tmp_path / "log") as generator:
            yield generator, bodies
        over.set()


async def test_every_request_is_valid_json_with_a_different_recipient(tmp_path: Path) -> None:
    async with generating(tmp_path, connections=4) as (generator, bodies):
        load = await generator.send(LoadOrder(first=7, count=20, timeout_s=PATIENCE_S))
        again = await generator.send(LoadOrder(first=27, count=1, timeout_s=PATIENCE_S))

    assert (load.accepted, again.accepted) == (20, 1)
    requests = [json.loads(body) for body in bodies]
    assert sorted(request["to"][0] for request in requests) == [
        f"m{number:010d}@bench-{number % 3}.test" for number in range(7, 28)
    ]
    assert 1900 < len(requests[0]["text"] + requests[0]["html"]) < 2200
    latencies, answers = times_of(load)
    assert len(latencies) == len(answers) == 20
    assert all(0 < latency < 10 for latency in latencies)


async def test_a_large_message_has_an_attachment_of_its_size(tmp_path: Path) -> None:
    async with generating(tmp_path, connections=2, attached=100_000) as (generator, bodies):
        load = await generator.send(LoadOrder(first=1, count=3, timeout_s=PATIENCE_S))

    assert load.accepted == 3
    requests = [json.loads(body) for body in bodies]
    assert {request["to"][0] for request in requests} == {f"m{n:010d}@bench-{n % 3}.test" for n in (1, 2, 3)}
    assert [len(b64decode(request["attachments"][0]["content"])) for request in requests] == [100_000] * 3


@pytest.mark.exhaustive
@pytest.mark.journey
def test_another_account_sends_beside_large_messages(temporary: Path) -> None:
    options = {"size": 300_000, "door": "smtp", "bystander": 10.0, "connections": 4}
    with start_bench(temporary, messages=40, warm_up=2, paced=False, **options) as bench:
        out, err = bench.communicate(timeout=100)
    assert bench.returncode == 0, out + err
    result = json.loads(out)

    assert result["checked"]
    assert result["message_bytes"] > 400_000
    assert 1 < result["wal_per_content"] < 2
    assert all(result["bystander"][phase]["messages"] > 0 for phase in ("alone", "beside"))
    assert result["bystander"]["arrive_p99_times"] > 0


async def test_a_refusal_is_counted_with_its_answer_and_has_no_latency(tmp_path: Path) -> None:
    async with generating(tmp_path, connections=2, status=b"429 Too Many Requests") as (generator, _):
        load = await generator.send(LoadOrder(first=0, count=6, timeout_s=PATIENCE_S))

    assert (load.accepted, load.refused) == (0, {"429": 6})
    assert load.example is not None
    assert load.example.startswith("429")
    assert all(math.isnan(latency) for latency in times_of(load)[0])


@pytest.mark.exhaustive
async def test_an_order_to_a_stalled_service_ends_at_its_timeout(tmp_path: Path) -> None:
    async with generating(tmp_path, connections=2, takes_s=30) as (generator, _):
        load = await generator.send(LoadOrder(first=0, count=6, timeout_s=0.3))

    assert (load.accepted, load.refused) == (0, {"unanswered": 6})


@pytest.mark.exhaustive
async def test_paced_requests_are_sent_no_earlier_than_due(tmp_path: Path) -> None:
    async with generating(tmp_path, connections=8) as (generator, _):
        load = await generator.send(LoadOrder(first=0, count=50, rate=500, timeout_s=PATIENCE_S))

    assert load.accepted == 50
    assert load.ended - load.began >= 49 / 500


async def test_the_latency_includes_waiting_for_a_connection(tmp_path: Path) -> None:
    """Use one connection, 50 ms per answer and a request due every 10 ms: the tenth waits for nine others."""
    async with generating(tmp_path, connections=1, takes_s=0.05) as (generator, _):
        load = await generator.send(LoadOrder(first=0, count=10, rate=100, timeout_s=PATIENCE_S))

    latencies = times_of(load)[0]
    assert latencies[9] >= 10 * 0.05 - 9 * 0.01 - 0.005
    assert load.accepted == 10


def test_every_option_of_the_command_belongs_to_a_bench() -> None:
    given = {option.name for option in bench.params} - {"name", "selected", "as_json", "broadcast", "console"}

    assert given == {option for one in catalogue.CATALOGUE for option in one.options} - LENGTHS


@pytest.mark.parametrize(
    ("words", "name", "options"),
    [
        (["--rsa", "--messages", "9"], "send", {"rsa": True, "messages": 9}),
        (["--mx", "--messages", "9"], "mx", {"messages": 9}),
        (["mx", "--tls"], "mx", {"tls": True}),
        (["--tails", "5"], "tails", {"tails": 5}),
        (["--broadcast", "500"], "broadcast", {"contacts": 500}),
        (["--no-paced"], "send", {"paced": False}),
        (["--size", "5000"], "send", {"size": 5_000}),
        (["--size", "100KB", "--door", "raw"], "send", {"size": 100_000, "door": "raw"}),
        (["--size", "10MB", "--bystander", "50"], "send", {"size": 10_000_000, "bystander": 50.0}),
    ],
)
def test_a_bench_is_chosen_by_its_name_or_by_a_flag(
    words: list[str], name: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(name: str, options: dict[str, object], *, as_json: bool) -> int:
        asked.append((name, options))
        return 0

    monkeypatch.setattr(command, "run", run)

    CliRunner().invoke(bench, words)

    assert asked == [(name, options)]


@pytest.mark.parametrize("text", ["0", "1.5MB", "10 MB", "MB", "-1", "5kb"])
def test_what_is_no_size_is_refused(text: str) -> None:
    answer = CliRunner().invoke(bench, ["--size", text])

    assert answer.exit_code == 2
    assert "such as 5000, 100KB or 1MB" in answer.output


def test_an_option_of_another_bench_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run("tails", {"drain": 5}, as_json=False) == 2

    assert "The bench tails has no option --drain; it can be given to: send." in capsys.readouterr().err


def test_neighbouring_rows_of_as_many_cells_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    report.show([("", "ms"), ("a", "5.25"), ("longer", "12.5"), (), ("a line",)])

    assert capsys.readouterr().out == "          ms\na       5.25\nlonger  12.5\n\na line\n"


def test_cpu_of_ended_children_counts_for_their_parent() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('done'); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "done\n"
        used = measure.sample({"role": [parent.pid]}).roles["role"]
        memory, _ = measure.memory_mb({"role": [parent.pid], "gone": [2**22 + 1]})
        parent.communicate("\n")

    assert used.cpu_ms >= 290
    assert used.switches > 0
    assert memory["role"] > 1
    assert memory["gone"] == 0


def test_cpu_of_running_children_counts() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sleep 30 & wait"], start_new_session=True) as parent:
        try:
            for _ in range(100):
                if len(measure.tree_of(parent.pid)) == 2:
                    break
                parent.poll()
                subprocess.run(["sleep", "0.02"], check=True)
            assert len(measure.tree_of(parent.pid)) == 2
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_server_cpu_excludes_generator_and_sink() -> None:
    before = UsageSample({role: RoleUsage() for role in ("api", "mta", "sink")}, 0.0, 0.0, 100.0)
    after = UsageSample(
        {"api": RoleUsage(10, 30), "mta": RoleUsage(40, 5), "sink": RoleUsage(500, 0)}, 1550.0, 20.0, 101.0
    )
    used = figures.usage(before, after, 100)

    assert used["server_cpu_ms_per_message"] == 0.5
    assert used["cpu_ms_by_role"] == {"api": 0.1, "mta": 0.4, "sink": 5.0}
    assert used["context_switches_by_role"] == {"api": 0.3, "mta": 0.05, "sink": 0.0}
    assert used["cores_used_by_others"] == 1.0


def test_percentiles_are_values_that_occurred() -> None:
    values = [number / 1000 for number in range(1, 101)]

    assert figures.percentiles([*values, math.nan]) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert figures.percentiles([0.004]) == {"p50": 4.0, "p95": 4.0, "p99": 4.0}
    assert figures.percentiles([math.nan]) is None


def test_runs_are_combined_by_the_median_of_every_number() -> None:
    runs = [
        {"rate": float(rate), "checked": True, "ms": {"p50": rate / 10}, "none": None, "count": rate, "name": "a"}
        for rate in (30, 10, 20)
    ]

    assert figures.medians(runs) == {
        "rate": 20.0, "checked": True, "ms": {"p50": 2.0}, "none": None, "count": 20, "name": "a",
    }  # fmt: skip


def test_flushes_are_the_difference_of_two_readings() -> None:
    text = (
        "# HELP waybill_flush_items Items per group commit\n"
        'waybill_flush_items_sum{{flow="accept"}} {items}\n'
        'waybill_flush_items_count{{flow="accept"}} {count}\n'
        'waybill_flush_seconds_sum{{flow="accept"}} {seconds}\n'
        'waybill_smtp_connections_total{{how="reused"}} {count}\n'
    )
    before = figures.parse_metrics(text.format(items="10.0", count="5.0", seconds="1e-05"))
    after = figures.parse_metrics(text.format(items="110.0", count="7.0", seconds="0.01001"))

    assert figures.flushes(before, after) == {"accept": {"flushes": 2, "items": 50.0, "ms": 5.0}}
    assert figures.connections(before, after) == {"reused": 2}


def test_the_settle_lag_has_the_share_of_half_seconds_within_50_ms() -> None:
    text = (
        "waybill_settle_seconds_sum {total}\n"
        'waybill_settle_seconds_bucket{{le="0.05"}} {quick}\n'
        'waybill_settle_seconds_bucket{{le="+Inf"}} {count}\n'
        "waybill_settle_seconds_count {count}\n"
    )
    before = figures.parse_metrics(text.format(total="1.0", quick="2.0", count="4.0"))
    after = figures.parse_metrics(text.format(total="1.4", quick="11.0", count="14.0"))

    assert figures.settle_lag(before, after) == {"half_seconds": 10, "slowest_mean_ms": 40.0, "within_50_ms": 0.9}
    assert figures.settle_lag(before, before) is None
