"""A process of the fork server ends as one that the shell starts: its exit status, its output, its last functions."""

import os
import subprocess
import sys
import tempfile

import pytest

from tests.harness import fork_server
from tests.harness.patience import PATIENCE_S

PROGRAMS = {
    "its end": "print('Hello')",
    "no status": "import sys; print('Hello'); sys.exit()",
    "status 0": "import sys; print('Hello'); sys.exit(0)",
    "status 3": "import sys; print('Hello'); sys.exit(3)",
    "status 259": "import sys; print('Hello'); sys.exit(259)",
    "status -1": "import sys; print('Hello'); sys.exit(-1)",
    "True": "import sys; print('Hello'); sys.exit(True)",
    "a text": "import sys; print('Hello'); sys.exit('It failed.')",
    "a signal": "import os; print('Hello', flush=True); os.kill(os.getpid(), 15)",
    "a function at the end": "import atexit; atexit.register(print, 'at the end'); print('Hello')",
    "a thread": "import threading as t, time; t.Thread(target=lambda: (time.sleep(0.1), print('Hello'))).start()",
    "much output": "print('Hello' * 100_000)",
    "an interrupt": "print('Hello'); raise KeyboardInterrupt",
    "an exception": "print('Hello'); raise ValueError('wrong')",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_forked_process_ends_as_a_started_one(program: str) -> None:
    started = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False
    )
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        forked = fork_server.start("-c", [program], environ=os.environ, stdout=out, stderr=err)
        status = forked.wait(PATIENCE_S)
        printed, told = (os.pread(file.fileno(), 1_000_000, 0) for file in (out, err))

    assert (status, printed) == (started.returncode, started.stdout)
    assert told.splitlines()[-1:] == started.stderr.splitlines()[-1:]  # a traceback names other files before
