"""Scan octets for viruses with clamd: the command INSTREAM over a Unix or TCP socket (clamd(8)).

One connection carries one scan. clamd may answer before it has read everything, for example because the stream
exceeds its StreamMaxLength, and then closes: the answer is read while the octets are sent.
"""

import asyncio
import re
from contextlib import suppress
from typing import Final

from engine.base.settings import SocketAddress
from engine.receiving.types import AttachmentScan, ScanVerdict
from mta.inbound.scanning.breaker import ScannerUnavailable

PIECE: Final = 64 * 1024
MAX_ANSWER: Final = 4_096
MAX_SIGNATURE: Final = 200  # characters
_END: Final = b"\0"
_CLEAN: Final = "stream: OK"
_TOO_LARGE: Final = "INSTREAM size limit exceeded. ERROR"
_found = re.compile(r"stream: (.+) FOUND").fullmatch


async def scan_stream(address: SocketAddress, octets: bytes) -> ScanVerdict:
    """Return the verdict on `octets`; FAILED if clamd's own size limit cut the scan short.

    Raises ScannerUnavailable. The caller limits the time.
    """
    try:
        reader, writer = await _connect(address)
    except OSError as error:
        raise ScannerUnavailable(f"clamd at {address} can't be reached: {error}") from error
    try:
        return _verdict(await _exchange(reader, writer, octets))
    finally:
        writer.transport.abort()


async def _connect(address: SocketAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.path:
        return await asyncio.open_unix_connection(address.path, limit=MAX_ANSWER)
    return await asyncio.open_connection(address.host, address.port, limit=MAX_ANSWER)


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, octets: bytes) -> str:
    """Send the octets and return the answer without its end, "" if the connection ended before."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(_send(writer, octets))
        answer = await _answer(reader)
        sending.cancel()
    return answer.removesuffix(_END).decode("utf-8", "replace").strip()


async def _send(writer: asyncio.StreamWriter, octets: bytes) -> None:
    with suppress(OSError):  # clamd may have answered and closed
        writer.write(b"zINSTREAM\0")
        with memoryview(octets) as view:
            for start in range(0, len(octets), PIECE):
                piece = view[start : start + PIECE]
                writer.writelines((len(piece).to_bytes(4, "big"), bytes(piece)))
                await writer.drain()
        writer.write(bytes(4))  # a piece of no octets ends the stream


async def _answer(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(_END)
    except asyncio.IncompleteReadError as error:
        return error.partial
    except (OSError, asyncio.LimitOverrunError):
        return b""


def _verdict(answer: str) -> ScanVerdict:
    if answer == _CLEAN:
        return ScanVerdict(AttachmentScan.CLEAN)
    if (found := _found(answer)) is not None:
        return ScanVerdict(AttachmentScan.INFECTED, found[1][:MAX_SIGNATURE])
    if answer == _TOO_LARGE:
        return ScanVerdict(AttachmentScan.FAILED)
    raise ScannerUnavailable(f"clamd answered {answer[:100]!r}" if answer else "clamd closed without an answer")
