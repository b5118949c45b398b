"""Entry points of the service processes that have no separate package."""

import sys

# `python -m ops.processes.…` locates its module: argv[0] is "-m" just then. structlog imports rich, where it is
# installed, for a console output that these processes do not use: 3 MB in each.
if sys.argv[0] == "-m":
    sys.modules["rich"] = None  # type: ignore[assignment]
