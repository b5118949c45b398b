"""What the doctor asks of name servers that are trusted to validate DNSSEC (`WAYBILL_DNSSEC_TRUSTED`).

DANE believes the AD bit of their answers. A forwarder that copies the bit from the question into the answer makes it
believe unsigned records, so a name is asked for that nobody can validate.
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
    """The AD bits of one server's answers about a signed and an unsigned name; `away`: why there are none."""

    server: str
    signed: bool = False
    unsigned: bool = False
    away: str | None = None


async def dnssec(settings: Settings) -> list[DoctorFinding]:
    """Every name server validates, where it is trusted to; nothing to say where it isn't."""
    if not settings.dnssec_trusted:
        return []
    if settings.delivery == "local":
        return [good(CHECK, "not tested: in local mode all mail goes to the sink, and DANE is not used")]
    servers = settings.dns_servers or system_servers()
    return [judged(await asyncio.gather(*[_asked(server) for server in servers]))]


def judged(answers: list[Answers]) -> DoctorFinding:
    """Return what the answers say, the worst first."""
    name = variable("dnssec_trusted")
    if echoing := [one.server for one in answers if one.unsigned]:
        found = f"{', '.join(echoing)} calls {UNSIGNED} authentic, which is unsigned: DANE would believe forged records"
        return bad(CHECK, found, f"Unset {name}, or name servers that validate in {variable('dns_servers')}.")
    if away := [f"{one.server} ({one.away})" for one in answers if one.away is not None]:
        mend = f"Let this host reach its name servers, or name others in {variable('dns_servers')}."
        return bad(CHECK, f"can't be tested: no usable answer from {', '.join(away)}", mend)
    if blind := [one.server for one in answers if not one.signed]:
        found = f"{', '.join(blind)} does not validate: not even the root zone is authentic, so DANE is never used"
        return bad(CHECK, found, f"Name servers that validate in {variable('dns_servers')}, or unset {name}.")
    servers = ", ".join(one.server for one in answers)
    return good(CHECK, f"{servers} validates: the root zone is authentic, the unsigned {UNSIGNED} is not")


async def _asked(server: HostPort) -> Answers:
    try:
        signed, unsigned = await asyncio.gather(_is_authentic(server, SIGNED), _is_authentic(server, UNSIGNED))
    except (OSError, EOFError, ValueError, dns.exception.DNSException) as error:
        return Answers(str(server), away=describe_error(error))
    if signed is None:
        return Answers(str(server), unsigned=bool(unsigned), away=f"it refuses to answer for {SIGNED}")
    return Answers(str(server), signed, bool(unsigned))


async def _is_authentic(server: HostPort, name: str) -> bool | None:
    """Return the AD bit of an answer, as an mta process asks for it (RFC 6840 5.7); None when there is no answer.

    Any answer counts, NXDOMAIN too; SERVFAIL and REFUSED say nothing.
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
