"""Stop a process at SIGTERM or SIGINT."""

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def first_of(work: "asyncio.Task[None]", stop: asyncio.Event) -> None:
    """Wait until `stop` is set; raises the error of `work` if that ends before, so that the process is started anew."""
    ended = asyncio.create_task(stop.wait())
    await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        ended.cancel()
        work.result()
