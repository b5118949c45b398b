"""Check the certificate with which the policy host of a domain answers on the HTTPS port (RFC 8461 3.3)."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from engine.receiving.mta_sts.types import CertificateStatus
from engine.store.resolver import Records, Resolver

CONNECT_S: Final = 5.0
MAX_ADDRESSES: Final = 4

# Codes of X509_V_ERR_…: openssl/x509_vfy.h
_EXPIRED: Final = frozenset({9, 10})  # not yet valid, expired
_OTHER_NAME: Final = 62


async def certificate_status(
    host: str, port: int, *, resolver: Resolver, trusted: ssl.SSLContext, may_dial: Callable[[str], bool]
) -> CertificateStatus:
    """Connect to `host` and return what is wrong with its certificate; the first address that answers decides."""
    found: CertificateStatus = "unreachable"
    for address in await _addresses(resolver, host, may_dial):
        found = await _at(address, port, host, trusted)
        if found != "unreachable":
            return found
    return found


async def _addresses(resolver: Resolver, host: str, may_dial: Callable[[str], bool]) -> list[str]:
    answers = await asyncio.gather(resolver.addresses(host, "A"), resolver.addresses(host, "AAAA"))
    known = [address for answer in answers if isinstance(answer, Records) for address in answer.values]
    return [address for address in known if may_dial(address)][:MAX_ADDRESSES]


async def _at(address: str, port: int, host: str, trusted: ssl.SSLContext) -> CertificateStatus:
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(address, port, ssl=trusted, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        return _verdict(error.verify_code)
    except ssl.SSLError:  # such as the alert "unrecognized name": the server has no certificate for the host
        return "missing"
    except OSError:  # a time-out is one
        return "unreachable"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return "ok"


def _verdict(code: int) -> CertificateStatus:
    if code in _EXPIRED:
        return "expired"
    return "mismatch" if code == _OTHER_NAME else "untrusted"
