"""Answer DNS queries in local mode as if every owner had published the requested records."""

from engine.sending.domains import records, store
from engine.sending.domains.types import MailHostIdentity
from engine.store.queries import Conn

_PREFIXES = ("_dmarc.", "_mta-sts.", "mta-sts.", "_smtp._tls.")


async def published(connection: Conn, identity: MailHostIdentity, name: str, rdtype: str) -> list[str]:
    """Return the records at `name`, in zone file form.

    If several accounts have the domain, the verified one answers, else the newest, because a zone has one key per
    selector. A removed domain answers until it is purged, for mail in transit.
    """
    plain = name.rstrip(".").lower()
    if plain.endswith(f"._report._dmarc.{identity.mail_host}"):
        return ["v=DMARC1"] if rdtype == "TXT" else []  # accept reports about any domain (RFC 7489 7.1)
    domain = _domain_of(plain)
    if plain == records.bounce_domain(identity.mail_host):
        return [f"v=spf1 a:{identity.mail_host} -all"] if rdtype == "TXT" else _mx(identity) if rdtype == "MX" else []
    owners = await store.OWNERS.fetch(connection, domain)
    for owner in owners[:1]:
        keys = await store.PUBLISHED.fetch(connection, owner.id)
        wanted = records.wanted_of(owner, keys, identity)
        return [_zone_form(rdtype, one.value) for one in wanted if one.place == (rdtype, plain)]
    return await _at_return_path(connection, identity, plain, rdtype)


async def _at_return_path(connection: Conn, identity: MailHostIdentity, name: str, rdtype: str) -> list[str]:
    """Return the records at the return-path host of a domain, [] if `name` is not one.

    It is an alias of the bounce domain: queries for other types get the records there.
    """
    label, _, parent = name.partition(".")
    for owner in (await store.OWNERS.fetch(connection, parent))[:1]:
        if owner.return_path_label != label:
            return []
        bounces = records.bounce_domain(identity.mail_host)
        return [f"{bounces}."] if rdtype == "CNAME" else await published(connection, identity, bounces, rdtype)
    return []


def _domain_of(name: str) -> str:
    """Return the sending domain of a record name; other names are returned unchanged."""
    _, mark, domain = name.partition("._domainkey.")
    if mark:
        return domain
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


def _mx(identity: MailHostIdentity) -> list[str]:
    return [f"{records.MX_PREFERENCE} {identity.mail_host}."]


def _zone_form(rdtype: str, value: str) -> str:
    """Append the final dot that names have in zone files."""
    return value if rdtype == "TXT" else f"{value}."
