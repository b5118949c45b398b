"""The operator's entry: `python3 -m ops COMMAND` sets itself up, then runs the command.

Until the project's own environment runs this file, it uses the standard library only; its syntax stays
readable to old interpreters, so that they can say which one is wanted.
"""

from __future__ import annotations

import sys

OLDEST = (3, 11)


def main(argv: list[str] | None = None) -> int:
    """Run one operator command; gives its exit status."""
    words = sys.argv[1:] if argv is None else argv
    here = sys.version_info[:2]
    if here < OLDEST:
        sys.stderr.write(
            f"Waybill needs Python {OLDEST[0]}.{OLDEST[1]} or newer and this is Python {here[0]}.{here[1]}:"
            " start it with a newer one, for example `python3.12 -m ops up`.\n"
        )
        return 2
    from ops import bootstrap  # noqa: PLC0415 - newer syntax

    status = bootstrap.enter(words)
    if status is not None:
        return status
    from ops.cli import main as command  # noqa: PLC0415 - its packages exist from here on

    return int(command(words) or 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before a command runs, which ends with the same status by itself
        sys.exit(130)
