"""The addresses of this host that mail leaves from, as the settings name them, and the check that the host has them."""

import errno
import socket

from msgspec import Struct

from engine.base.settings import BadSetting, Settings, variable


class SourceAddress(Struct, frozen=True):
    """An address to bind connections to, and the name to greet with from there (RFC 5321 4.1.1.1)."""

    ip: str
    helo: str

    @property
    def family(self) -> str:
        """Return the address family: 4 or 6."""
        return "6" if ":" in self.ip else "4"


def sources_of(settings: Settings) -> tuple[SourceAddress, ...]:
    """Return the configured sources; without any the system chooses."""
    return tuple(SourceAddress(one.ip, one.name or settings.mail_host) for one in settings.source_ips)


def check_sources(settings: Settings) -> None:
    """Raise BadSetting, naming it, for a source that is no address of this host."""
    for source in sources_of(settings):
        problem = why_not_ours(source.ip)
        if problem is not None:
            raise BadSetting(
                f"{variable('source_ips')} names {source.ip}, which mail can't leave from here: {problem}."
                " Add the address to this host (`ip address show` lists those it has), or take it out."
            )


def why_not_ours(ip: str) -> str | None:
    """Return why the system lets nothing be sent from the address, or None if it does."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((ip, 0))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return "it is no address of this host"
        return (error.strerror or str(error)).lower()
    return None
