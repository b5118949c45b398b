"""`ops bench tails` counts the events of every tail. No test checks a speed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.base.settings import PREFIX
from ops.host.process_specs import ROOT


@pytest.mark.exhaustive
@pytest.mark.timeout(120)
def test_the_tail_bench_counts_every_event_at_every_tail(tmp_path: Path) -> None:
    words = (
        "import sys; from loadtests.bench.command import run;"
        "sys.exit(run('tails', {'tails': 13, 'quiet_s': 1, 'busy_s': 2}, as_json=True))"
    )
    environ = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    environ["TMPDIR"] = str(tmp_path)  # a lock of its own: it need not wait for another bench
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=ROOT, env=environ, check=False, capture_output=True, text=True, timeout=110
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["checked"] is True
    assert (found["tails"], found["accounts"], found["open_at_end"]) == (13, 3, 13)
    assert found["delivered"] == found["expected"] == 67 * 5 + 67 * 5 + 66 * 3
    assert found["api_mb"]["with"] > 0
