"""The mta process runs at a lower priority than the processes that accept mail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mta.process import NICENESS

_GROUP = Path("/proc/self/autogroup")

_SHOW = """
import os
from pathlib import Path
from mta.process import NICENESS, give_way
group = Path("/proc/self/autogroup")
give_way(NICENESS)
words = group.read_text().split() if group.exists() else []
print(os.nice(0), words[-1] if words else "-")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("alone", [True, False])
def test_a_delivering_process_gives_way_and_renices_no_session_but_its_own(alone: bool) -> None:
    words = _GROUP.read_text().split() if _GROUP.exists() else []  # it is there and empty where grouping is off
    before = words[-1] if words else "-"
    done = subprocess.run(
        [sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True, timeout=30, start_new_session=alone
    )
    own, shared = done.stdout.split()

    assert int(own) == min(os.nice(0) + NICENESS, 19)  # relative to the caller; 19 is the last
    assert shared == before or (alone and shared == str(NICENESS))  # not every machine lets a process rank its group
