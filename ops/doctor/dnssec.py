"""Check of name servers that are trusted to validate DNSSEC (`WAYBILL_DNSSEC_TRUSTED`).

DANE relies on the AD bit of their answers. A forwarder that copies the bit from the question into the answer would
make it trust unsigned records, so the check also asks for a name whose answer can't be validated.
"""

import asyncio

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.rcode
from msgspec import Struct

from engine.base.settings import HostPort, Settings, variable
from engine.store.resolver import system_servers
from ops.doctor.finding import DoctorFinding, bad, describe_error, good

CHECK = "dnssec"
SIGNED = "."  # the root zone, signed since 2010
UNSIGNED = "home.arpa."  # RFC 8375 section 4: delegated without a DS record on purpose, so no answer can be validated
TIMEOUT_S = 4.0
TRIES = 2


class Answers(Struct, frozen=True):
    """AD bits of one server's answers for a signed and an unsigned name; `away` says why there are none."""

    server: str
    signed: bool = False
    unsigned: bool = False
    away: str | None = None


async def dnssec(settings: Settings) -> list[DoctorFinding]:
    """Check that every trusted name server validates; returns no finding if DNSSEC is not trusted."""
    if not settings.dnssec_trusted:
        return []
    if settings.delivery == "local":
        return [good(CHECK, "not checked: local mode sends all mail to the sink, without DANE")]
    servers = settings.dns_servers or system_servers()
    return [judged(await asyncio.gather(*[_asked(server) for server in servers]))]


def judged(answers: list[Answers]) -> DoctorFinding:
    """Return the finding for these answers; the most dangerous problem wins. Pure."""
    name = variable("dnssec_trusted")
    if echoing := [one.server for one in answers if one.unsigned]:
        found = f"{', '.join(echoing)} marks the unsigned {UNSIGNED} as authentic, so DANE would trust forged records"
        return bad(CHECK, found, f"Unset {name}, or set {variable('dns_servers')} to name servers that validate.")
    if away := [f"{one.server} ({one.away})" for one in answers if one.away is not None]:
        mend = f"Make the name servers reachable from this host, or set others in {variable('dns_servers')}."
        return bad(CHECK, f"can't be checked: no usable answer from {', '.join(away)}", mend)
    if blind := [one.server for one in answers if not one.signed]:
        found = (
            f"{', '.join(blind)} does not validate: the root zone is not authentic in its answers, so DANE is unused"
        )
        return bad(CHECK, found, f"Set {variable('dns_servers')} to name servers that validate, or unset {name}.")
    servers = ", ".join(one.server for one in answers)
    return good(CHECK, f"{servers} validates: the root zone is marked authentic, the unsigned {UNSIGNED} is not")


async def _asked(server: HostPort) -> Answers:
    try:
        signed, unsigned = await asyncio.gather(_is_authentic(server, SIGNED), _is_authentic(server, UNSIGNED))
    except (OSError, EOFError, ValueError, dns.exception.DNSException) as error:
        return Answers(str(server), away=describe_error(error))
    if signed is None:
        return Answers(str(server), unsigned=bool(unsigned), away=f"it refuses to answer for {SIGNED}")
    return Answers(str(server), signed, bool(unsigned))


async def _is_authentic(server: HostPort, name: str) -> bool | None:
    """Return the AD bit of an answer to a question with the AD bit set (RFC 6840 5.7); None without a usable answer.

    NXDOMAIN counts as an answer; SERVFAIL and REFUSED don't.
    """
    for attempt in range(TRIES):
        query = dns.message.make_query(name, "SOA", want_dnssec=True)
        query.flags |= dns.flags.AD
        try:
            answer, _ = await dns.asyncquery.udp_with_fallback(query, server.host, timeout=TIMEOUT_S, port=server.port)
        except dns.exception.Timeout:
            if attempt + 1 == TRIES:
                raise
            continue
        usable = answer.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)
        return bool(answer.flags & dns.flags.AD) if usable else None
    return None
