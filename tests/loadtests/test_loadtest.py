"""`ops loadtest`: scenarios, report and limits.

No test looks at a speed, and none needs Locust but the last, which is skipped where it is not installed.
"""

import ast
import base64
import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.base.settings import PREFIX
from engine.store.sink_folder import SinkEntry
from loadtests.bench.check import CheckResult
from loadtests.commands.loadtest import loadtest
from loadtests.peers import comparison
from loadtests.peers.peer import CONFIGURATIONS, PeerPlace
from loadtests.report import figures, load_record, page, samples
from loadtests.report.samples import LoadSample
from loadtests.runner import bounds
from loadtests.runner.catalogue import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
SCENARIO_FILES = ROOT / "loadtests" / "scenarios"
BEGAN = 1_790_000_000.0
CAN_LOAD = importlib.util.find_spec("locust") is not None and importlib.util.find_spec("matplotlib") is not None


def entry(recipient: str, at: str) -> SinkEntry:
    return SinkEntry(
        id="1",
        at=at,
        sender="shop@a.test",
        recipients=(recipient,),
        helo="h",
        tls=None,
        size=1,
        test_id=None,
        file=None,
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Write the record of a load of two seconds: three sends, one of them refused, and a read."""
    rows: dict[str, list[tuple[object, ...]]] = {
        "span.csv": [("at", "what"), (BEGAN, "began"), (BEGAN + 2, "ended")],
        "requests.csv": [
            ("at", "name", "group", "ms", "status", "offered", "accepted"),
            (BEGAN + 0.5, "send", "all", "10.00", "202", 1, 1),
            (BEGAN + 1.5, "send", "all", "30.00", "202", 1, 1),
            (BEGAN + 1.6, "send", "all", "5.00", "429", 1, 0),
            (BEGAN + 1.7, "GET me", "read", "2.00", "200", 0, 0),
        ],
        "accepted.csv": [
            ("at", "recipient", "group"), (BEGAN + 0.5, "m+0@a.test", "all"), (BEGAN + 1.5, "m+1@a.test", "all"),
        ],
    }  # fmt: skip
    for name, lines in rows.items():
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(lines)
    return tmp_path


@pytest.fixture
def arrived() -> list[SinkEntry]:
    return [entry("m+0@a.test", "2026-09-21T14:13:20.600Z"), entry("m+1@a.test", "2026-09-21T14:13:22.000Z")]


def moments() -> list[LoadSample]:
    return [
        LoadSample(
            BEGAN + second, 4 - second, 1, 4 - second, 0.5, 0, {"api": 100.0 * second, "locust": cpu}, {"api": 50.0}
        )
        for second, cpu in enumerate((0.0, 400.0, 0.0))
    ]


def test_scenarios_and_files_match() -> None:
    assert {one.file for one in SCENARIOS.values()} == {
        file.name for file in SCENARIO_FILES.glob("*.py") if file.name != "__init__.py"
    }
    assert all(name == one.name for name, one in SCENARIOS.items())


@pytest.mark.parametrize("name", [one.file for one in SCENARIOS.values()])
def test_scenarios_do_not_import_the_service(name: str) -> None:
    for file in (SCENARIO_FILES / name, *(ROOT / "loadtests" / "users").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {one.split(".")[0] for one in names} & {"engine", "api", "mta", "shards", "ops"}, file


def test_scenarios_are_listed_without_locust_and_matplotlib() -> None:
    found = json.loads(CliRunner().invoke(loadtest, ["list", "--json"]).output)

    assert [one["name"] for one in found["loads"]] == list(SCENARIOS)
    assert "locust" not in sys.modules


def test_every_load_is_bounded_in_time_and_messages() -> None:
    assert all(0 < one.seconds <= 3_600 and 0 < one.max_messages <= 1_000_000 for one in SCENARIOS.values())


def test_the_record_has_rates_times_and_refusals(ledger: Path, arrived: list[SinkEntry]) -> None:
    done = load_record.read(ledger, arrived)

    assert (done.seconds, len(done.recipients), done.copies, done.unexpected) == (2.0, 2, 0, 0)
    assert load_record.by_name(done)["send"] == {
        "requests": 3, "failed": {"429": 1}, "per_s": 1.5, "ms": {"p50": 10.0, "p95": 30.0, "p99": 30.0, "max": 30.0},
    }  # fmt: skip
    [group] = load_record.groups(done).values()
    assert group["accepted"] == 2
    assert group["deliver_ms"] == {"p50": 100.0, "p95": 500.0, "p99": 500.0, "max": 500.0}


def test_extra_copies_and_unexpected_arrivals_are_counted(ledger: Path, arrived: list[SinkEntry]) -> None:
    done = load_record.read(ledger, [*arrived, arrived[0], entry("other@a.test", "2026-09-21T14:13:21.000Z")])

    assert (done.copies, done.unexpected) == (1, 1)


def test_reading_a_load_that_never_began_raises_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="never began"):
        load_record.read(tmp_path, [])


def test_rates_are_per_second_and_weighted() -> None:
    assert load_record.rates([0.1, 0.2, 1.9, 7.0], 3, [1.0, 100.0, 1.0, 1.0]) == [(0.5, 101.0), (1.5, 1.0), (2.5, 0.0)]


def test_cpu_of_a_process_that_ended_counts() -> None:
    assert samples.spent(moments(), BEGAN, BEGAN + 2) == {"api": 200.0, "locust": 400.0}


def test_tables_of_queue_and_processes_count_seconds_from_the_first_send(tmp_path: Path) -> None:
    samples.write_tables(moments(), tmp_path, BEGAN)

    assert (tmp_path / "queue.csv").read_text("utf-8").splitlines()[1] == "0.0,4,1,0.50,0"
    assert (tmp_path / "processes.csv").read_text("utf-8").splitlines()[1] == "1.0,api,10.0,50.0"


def test_the_page_is_self_contained_and_escapes_its_values() -> None:
    picture = b"\x89PNG\r\n"
    found = {
        "scenario": "single", "about": "<b>sends</b>", "users": 2, "rate": None, "seconds": 2.0, "accepted": 2,
        "accepted_per_s": 1.0, "checks": [{"ok": False, "what": "a & b", "found": "x"}], "requests": {}, "groups": {},
        "tail_ms": None, "tail_events": 0, "cores_by_role": {}, "webhook_posts": 0, "service": "its own", "accounts": 1,
        "settings": {}, "versions": {}, "machine": {},
    }  # fmt: skip

    text = page.html(found, {"Throughput": picture})

    assert "&lt;b&gt;sends" in text
    assert "a &amp; b" in text
    assert "<b>sends" not in text
    assert base64.b64encode(picture).decode() in text
    assert not re.search(r"(?:src|href)=['\"]?https?:", text)


@pytest.mark.parametrize("url", ["http://192.0.2.1:8080", "https://mail.example.com", "http://localhost.example.com"])
def test_a_load_accepts_only_loopback_targets(url: str) -> None:
    with pytest.raises(bounds.LoadFailed, match="loopback"):
        bounds.check_target(SCENARIOS["single"], url, "key")


def test_a_load_with_its_own_accounts_refuses_a_running_service() -> None:
    with pytest.raises(bounds.LoadFailed, match="own accounts"):
        bounds.check_target(SCENARIOS["tails"], "http://127.0.0.1:8080", "key")


def test_an_unknown_load_is_refused_with_the_list_of_loads() -> None:
    found = CliRunner().invoke(loadtest, ["nosuch"])

    assert found.exit_code == 1
    assert "slow-mx" in found.output


# -- peers ------------------------------------------------------------------------------------------


def test_ratios_are_taken_within_a_pair() -> None:
    def pair(ours: float, theirs: float) -> dict[str, dict[str, float]]:
        return {
            name: {"delivered_per_s": rate, "server_cpu_ms_per_message": 1000 / rate, "cost_in_signatures": 4000 / rate}
            for name, rate in (("ours", ours), ("theirs", theirs))
        }

    found = comparison.summarize([pair(1000, 200), pair(100, 50), pair(900, 300)])

    assert (found["times_the_rate"], found["times_less_cpu"], found["times_less_in_signatures"]) == (3.0, 3.0, 3.0)


def test_every_name_in_a_peer_configuration_is_replaced(tmp_path: Path) -> None:
    place = PeerPlace(tmp_path, 2601, 2602, 2603, tmp_path / "key.pem")
    more = dict.fromkeys(("MILTER", "FILTER", "PROGRAMS", "DOMAIN", "UID", "GID"), "")

    for file in CONFIGURATIONS.rglob("*"):
        if file.is_file():
            text = "".join(
                line for line in file.read_text("utf-8").splitlines(keepends=True) if not line.startswith(("#", ";"))
            )
            assert not re.search(r"@[A-Z_]+@", place.filled(text, more)), file


def test_a_missing_peer_is_reported_and_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("NODE_PATH", raising=False)

    status = comparison.run(runs=1, only=("haraka",), as_json=True)

    assert status == 1
    assert "nodejs" in json.loads(capsys.readouterr().out)["missing"]["haraka"]


# -- the whole -----------------------------------------------------------------------------------------


@pytest.mark.journey
@pytest.mark.skipif(not CAN_LOAD, reason="the packages of the group load are not installed: `ops loadtest` does that")
@pytest.mark.timeout(110)
def test_a_short_load_passes_its_checks_and_writes_a_report(tmp_path: Path) -> None:
    environ = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    script = (
        "import sys; from pathlib import Path; from loadtests.runner.run import run;"
        " sys.exit(run('single', seconds=3, users=2, rate=20, out=Path(sys.argv[1]), as_json=True))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "report")], cwd=ROOT, env=environ, text=True, timeout=100,
        capture_output=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["accepted"] == found["arrived"] > 0
    names = {file.name for file in (tmp_path / "report").iterdir()}
    assert {"report.html", "requests.csv", "queue.csv", "processes.csv", "throughput.png", "cpu.png"} <= names
    assert "world.json" not in names  # it held keys


def test_a_check_that_fails_makes_the_load_fail() -> None:
    done = load_record.LoadRecord(BEGAN, BEGAN + 1, [], [], [], 0, 0)
    found = figures.summarize(
        done, samples.Sampler(None, {}, ()), [CheckResult("whole", False, "broken")], [0.2, 0.2], {}
    )

    assert found["checked"] is False
