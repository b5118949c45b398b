"""The application factory that the tests' Granian loads: the real one, tied to the life of its parent.

Granian forks its worker, and a fork forgets the tie that `ops.host.launch` makes. Should Granian be killed, the
worker would live on and keep the test run's servers busy.
"""

import ctypes
import os
import signal
import sys

from api.app import create_app as create
from api.front import app as front
from api.front.app import FrontApp
from api.routes import App

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def create_app() -> App:
    """The application, in a worker that ends with Granian."""
    _tie()
    return create()


def create_front() -> FrontApp:
    """A front of cells, in such a worker."""
    _tie()
    return front.create_app()


def _tie() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:  # Granian died before the request
            os._exit(1)
