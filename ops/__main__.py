"""Entry point of the command line: `python3 -m ops COMMAND` prepares the environment, then runs the command.

This file may run before the virtual environment exists, so it imports the standard library only. Its syntax stays
valid in old Python versions, so that they can print which version is needed.
"""

from __future__ import annotations

import sys

OLDEST = (3, 11)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    here = sys.version_info[:2]
    if here < OLDEST:
        sys.stderr.write(
            f"Waybill needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is Python {here[0]}.{here[1]}."
            " Start it with a newer version, for example `python3.12 -m ops up`.\n"
        )
        return 2
    from ops.host import bootstrap  # noqa: PLC0415 - newer syntax

    status = bootstrap.enter(words)
    if status is not None:
        return status
    from ops.cli import main as command  # noqa: PLC0415 - its packages exist from here on

    return int(command(words) or 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # Ctrl-C before a command runs; commands exit with 130 themselves
        sys.exit(130)
