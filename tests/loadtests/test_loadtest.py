"""`ops loadtest`: scenarios, record and limits.

No test looks at a speed, and none needs Locust but the last, which is skipped where it is not installed.
"""

import ast
import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.base.settings import PREFIX
from engine.store.sink_folder import SinkEntry
from loadtests.bench.measure import RoleUsage, UsageSample
from loadtests.bench.run_control import BenchFailed
from loadtests.commands.loadtest import loadtest
from loadtests.peers import comparison
from loadtests.peers.peer import CONFIGURATIONS, PeerPlace
from loadtests.runner import load_record
from loadtests.runner.catalogue import SCENARIOS
from loadtests.runner.run import check_target
from loadtests.runner.samples import LoadSample, Sampler
from loadtests.scenarios.load_plan import SENT, SENT_FIELDS

ROOT = Path(__file__).resolve().parents[2]
SCENARIO_FILES = ROOT / "loadtests" / "scenarios"
BEGAN = 1_790_000_000.0
CAN_LOAD = importlib.util.find_spec("locust") is not None


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


ARRIVED = [entry("m+0@a.test", "2026-09-21T14:13:20.600Z"), entry("m+1@a.test", "2026-09-21T14:13:22.000Z")]


def sampler(*cpu_ms: float) -> Sampler:
    """Return a sampler of a process that used so much CPU at each second; 0 once it has ended."""
    made = Sampler(None, {"api": [1]}, ())  # type: ignore[arg-type]
    made.moments = [
        LoadSample(
            4 - second, 1, 4 - second, 0.5, 0, UsageSample({"api": RoleUsage(used)}, 0, 0, second), {"api": 50.0}
        )
        for second, used in enumerate(cpu_ms)
    ]
    return made


def test_every_scenario_has_its_users() -> None:
    tree = ast.parse((SCENARIO_FILES / "locustfile.py").read_text("utf-8"))
    users = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}

    assert {user for one in SCENARIOS.values() for user in one.classes} == users
    assert all(name == one.name for name, one in SCENARIOS.items())


def test_scenarios_do_not_import_the_service() -> None:
    for file in (*SCENARIO_FILES.glob("*.py"), ROOT / "loadtests" / "kit" / "message.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {one.split(".")[0] for one in names} & {"engine", "api", "mta", "shards", "ops"}, file


def test_scenarios_are_listed_without_locust() -> None:
    found = json.loads(CliRunner().invoke(loadtest, ["list", "--json"]).output)

    assert [one["name"] for one in found["loads"]] == list(SCENARIOS)
    assert "locust" not in sys.modules


def test_every_load_is_bounded_in_time_and_messages() -> None:
    assert all(0 < one.seconds <= 3_600 and 0 < one.max_messages <= 1_000_000 for one in SCENARIOS.values())


def test_the_record_counts_answers_arrivals_and_times(tmp_path: Path) -> None:
    sent: Sequence[tuple[object, ...]] = (
        SENT_FIELDS, (BEGAN + 0.5, "m+0@a.test", "all", "accepted"), (BEGAN + 1.5, "m+1@a.test", "all", "accepted"),
        (BEGAN + 1.6, "m+2@a.test", "all", "refused"),
    )  # fmt: skip
    with (tmp_path / SENT).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(sent)

    done = load_record.read(tmp_path, [*ARRIVED, ARRIVED[0], entry("other@a.test", "2026-09-21T14:13:21.000Z")])

    assert dict(done.answers) == {"accepted": 2, "refused": 1}
    assert (done.arrived, done.copies, round(done.seconds, 3), round(done.drained_s, 3)) == (3, 1, 1.1, 0.4)
    assert done.deliver_ms == {"all": {"p50": 100.0, "p95": 500.0, "p99": 500.0}}


def test_a_record_without_messages_raises_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing was sent"):
        load_record.read(tmp_path, [])


def test_cpu_of_a_process_that_ended_counts() -> None:
    assert sampler(0.0, 400.0, 0.0).figures(100)["cpu_ms_by_role"] == {"api": 4.0}


def test_the_table_of_samples_has_queue_cpu_and_memory(tmp_path: Path) -> None:
    sampler(0.0, 100.0).write(tmp_path)

    head, row = (tmp_path / "samples.csv").read_text("utf-8").splitlines()
    assert head == "second,deliveries,never_tried,oldest_s,webhook_posts,api_cpu_percent,api_memory_mb"
    assert row == "1.0,3,1,0.50,0,10.0,50.0"


@pytest.mark.parametrize("url", ["http://192.0.2.1:8080", "https://mail.example.com", "http://localhost.example.com"])
def test_a_load_accepts_only_loopback_targets(url: str) -> None:
    with pytest.raises(BenchFailed, match="loopback"):
        check_target(SCENARIOS["single"], url, "key")


def test_a_load_with_its_own_accounts_refuses_a_running_service() -> None:
    with pytest.raises(BenchFailed, match="own accounts"):
        check_target(SCENARIOS["tails"], "http://127.0.0.1:8080", "key")


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
    more = dict.fromkeys(("MILTER", "FILTER", "PROGRAM", "PROGRAMS", "DOMAIN", "USER", "UID", "GID"), "")

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

    status = comparison.run("peers", runs=1, only=("haraka",), as_json=True)

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
    assert {"report.html", "figures.json", "samples.csv", "statistics.csv", "locust_stats_history.csv"} <= names
    assert "plan.json" not in names  # it held keys
