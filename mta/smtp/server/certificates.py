"""Load a server's TLS certificate from two files, and load it again when they change, without a restart."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog

from engine.store.pace import PACE

RELOAD_CHECK_S: Final = 2.0

_log = structlog.get_logger("smtp")
_Stamp = tuple[tuple[int, int, int], ...]


class ServerCertificate:
    """The current TLS context for handshakes. The constructor raises OSError when the files can't be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._stamp = self._stamped()
        self.context = _context(certificate, key)

    async def watch(self) -> None:
        """Check the files every `RELOAD_CHECK_S` seconds until cancelled."""
        while True:
            await PACE.wait(RELOAD_CHECK_S, 10.0)
            await asyncio.to_thread(self.reload_if_changed)

    def reload_if_changed(self) -> None:
        """Load the files again when they have changed.

        Files that can't be used (an ACME client may have replaced only one of the two) are tried again at the next
        check; until then the old certificate stays in use.
        """
        try:
            stamp = self._stamped()
            if stamp == self._stamp:
                return
            self.context = _context(*self._files)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            _log.error(
                "certificate files can't be used; the old certificate stays in use",
                files=[str(file) for file in self._files],
                error=str(error),
            )
            return
        self._stamp = stamp
        _log.info("certificate loaded", file=str(self._files[0]))

    def _stamped(self) -> _Stamp:
        """Return what changes with the files; follows symbolic links, which ACME clients replace."""
        found = [file.stat() for file in self._files]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # RFC 8997: submission needs 1.2 or newer
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # A mail client that resumes sessions gains nothing; one that quits at once resets on unread tickets.
    context.num_tickets = 0
    context.load_cert_chain(certificate, key)
    return context
