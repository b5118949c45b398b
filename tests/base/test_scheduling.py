"""Waybill's processes do not preempt a running process when they wake."""

import os
import subprocess
import sys

import pytest

_SHOW = """
import os, threading
from engine.base import scheduling
scheduling.yield_to_running()
seen = []
thread = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
thread.start()
thread.join()
print(os.sched_getscheduler(0), *seen)
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this kernel has no batch policy")
def test_a_process_and_its_later_threads_run_as_batch() -> None:
    done = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True, timeout=30)

    assert done.stdout.split() == [str(os.SCHED_BATCH)] * 2
