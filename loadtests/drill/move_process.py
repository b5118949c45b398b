"""A process that moves one account between two cells, and may kill itself after a step, as a crash would.

Prints the pause in seconds. Run by the drill `cells`.
"""

import asyncio
import os
import signal
import sys
from uuid import UUID

from engine.cells.directory import Directory
from ops.account_moves import move as moves
from ops.account_moves.fence import MoveRefused
from ops.account_moves.move import MoveEnds, MoveFailed


async def main(directory_url: str, ends: MoveEnds, account: UUID, last_step: str) -> None:
    """Move the account; end this process with SIGKILL after `last_step`, if that is one."""

    def step(name: str) -> None:
        if name == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    directory = await Directory.open(directory_url)
    try:
        moved = await moves.move(directory, ends, account, step=step, say=lambda *_: None)
    finally:
        await directory.close()
    print(moved.pause_s)


if __name__ == "__main__":
    directory_url, source_url, target_url, source, target, account, last_step = sys.argv[1:]
    try:
        asyncio.run(main(directory_url, MoveEnds(source_url, target_url, source, target), UUID(account), last_step))
    except (MoveFailed, MoveRefused) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
