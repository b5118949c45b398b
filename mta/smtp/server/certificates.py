"""The relay's TLS certificate: loaded from two files, and again when they change, without a restart."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog

LOOK_S: Final = 2.0

_log = structlog.get_logger("relay")
_Stamp = tuple[tuple[int, int, int], ...]


class ServerCertificate:
    """Holds the context that new handshakes use. Raises OSError at first when the files can't be used."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._stamp = self._stamped()
        self.context = _context(certificate, key)

    async def watch(self) -> None:
        """Look at the files every `LOOK_S` seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Load the files again when they have changed. What can't be used yet (one of the two may be on its way) is
        tried again; until then the old certificate serves."""
        try:
            stamp = self._stamped()
            if stamp == self._stamp:
                return
            self.context = _context(*self._files)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            _log.error("certificate not usable", files=[str(file) for file in self._files], error=str(error))
            return
        self._stamp = stamp
        _log.info("certificate loaded", file=str(self._files[0]))

    def _stamped(self) -> _Stamp:
        """What changes with the files, symbolic links followed: ACME clients move those."""
        found = [file.stat() for file in self._files]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # RFC 8997: submission needs 1.2 or newer
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.load_cert_chain(certificate, key)
    return context
