"""Checks of the records with which receivers judge the operator's own mail: SPF, DKIM, DMARC, and the TLS certificate.

SPF belongs to the host of return paths and to the mail host, which receivers check for bounces (RFC 7208 2.3, 2.4);
DKIM to the domain that sends the service's own mail; DMARC to that domain and the mail host. Reverse names and MX
records are in `ops.doctor.names`.
"""

import asyncio
import ssl
from ipaddress import ip_address

from engine.accounts import platform_account
from engine.authentication.dkim_signing import SigningKey
from engine.authentication.spf import SpfClient, check_host
from engine.base import clock
from engine.base.settings import Settings, variable
from engine.sending.domains import records, sample
from engine.sending.domains import store as domains
from engine.sending.domains.types import DomainKeyRow
from engine.store.resolver import Records, Resolver, TemporaryFailure
from mta.outbound.source_ips.addresses import sources_of
from ops.doctor.database import connect
from ops.doctor.finding import DoctorFinding, bad, describe_error, good
from ops.doctor.listeners import TIMEOUT_S
from ops.host.process_specs import certificate_days

REPEAT = "Repeat the check; name servers of the domain do not answer."


async def mail_records(settings: Settings) -> list[DoctorFinding]:
    """Check the records of the operator's hosts and of the domain of its own mail, in live mode."""
    if settings.delivery != "live":
        return []
    resolver = Resolver.from_settings(settings)
    host = settings.mail_host.lower()
    bounces = records.bounce_domain(host)
    try:
        found = [await _spf(resolver, settings, name) for name in (bounces, host)]
        found.append(await _dmarc(resolver, host))
        found += await _own_mail(resolver, settings)
    finally:
        await resolver.close()
    if "mx" in settings.processes and settings.mx_workers and settings.tls_cert is not None:
        found.append(await certificate(settings))
    return found


async def _spf(resolver: Resolver, settings: Settings, name: str) -> DoctorFinding:
    """Check that every address that mail comes from passes SPF for a host."""
    check, host = f"SPF of {name}", settings.mail_host.lower()
    of_host = await _addresses(resolver, host)
    others = [one.ip for one in sources_of(settings) if one.ip not in of_host and ip_address(one.ip).is_global]
    if not of_host and not others:
        return bad(check, f"{host} has no address", f"Publish A or AAAA of {host} with the source address of mail.")
    failed = []
    for address in [*of_host, *others]:
        client = SpfClient(ip_address(address), mail_from=f"postmaster@{name}", helo=host)
        result = await check_host(resolver, client, at=int(clock.machine_now().timestamp()), max_seconds=TIMEOUT_S)
        if result.result == "temperror":
            return bad(check, result.detail, REPEAT)
        if result.result != "pass":
            failed.append(f"{address}: {result.result} ({result.detail})")
    if not failed:
        return good(check, "pass for every source address")
    terms = [f"a:{host}", *[f"ip{ip_address(one).version}:{one}" for one in others]]
    mend = f'Publish {name} TXT "v=spf1 {" ".join(terms)} -all" and no other SPF record there.'
    return bad(check, "; ".join(failed), mend)


async def _dmarc(resolver: Resolver, name: str) -> DoctorFinding:
    """Check that a domain or one above it has a DMARC policy."""
    check = f"DMARC of {name}"
    for place in (name, *records.ancestors(name)):
        texts = await _texts(resolver, f"_dmarc.{place}")
        if isinstance(texts, TemporaryFailure):
            return bad(check, texts.detail, REPEAT)
        policies = [text for text in texts if records.tags(text).get("v") == "DMARC1"]
        if len(policies) == 1 and "p" in records.tags(policies[0]):
            return good(check, f"_dmarc.{place}: {policies[0][:100]}")
        if policies:
            mend = f'Publish _dmarc.{place} TXT "v=DMARC1; p=none" and no other DMARC record there.'
            return bad(check, f"{len(policies)} records at _dmarc.{place} that give no policy", mend)
    return bad(check, "no record", f'Publish _dmarc.{name} TXT "v=DMARC1; p=none", or a stricter policy.')


async def _own_mail(resolver: Resolver, settings: Settings) -> list[DoctorFinding]:
    """Check DKIM and DMARC of the domain that sends the service's own mail; none without a platform account."""
    connection = await connect(settings)
    try:
        platform = await platform_account.state(connection, settings)
        owners = await domains.OWNERS.fetch(connection, platform.domain)
        owner = next((one for one in owners if one.account_id == platform.account_id), None)
        if owner is None:
            return []  # the check of system mail reports it
        keys = await domains.PUBLISHED.fetch(connection, owner.id)
        signing = await domains.key_that_signs(connection, owner, pepper=settings.pepper)
    finally:
        connection.terminate()
    found = [await _dkim(resolver, owner.name, key, signing) for key in keys if key.is_rsa and key.status == "active"]
    return [*found, await _dmarc(resolver, owner.name)]


async def _dkim(resolver: Resolver, name: str, key: DomainKeyRow, signing: SigningKey | None) -> DoctorFinding:
    """Check the record of the key that signs, and with dkimpy a sample that it signs."""
    wanted = records.key_record(name, key)
    check = f"DKIM of {name}"
    texts = await _texts(resolver, wanted.host)
    if isinstance(texts, TemporaryFailure):
        return bad(check, texts.detail, REPEAT)
    status = records.status_of(wanted, texts)
    if status == "ok":
        why = None if signing is None else await asyncio.to_thread(sample.rejection, signing, texts[0])
        if why is None:
            return good(check, f"{wanted.host} has the key that signs")
        return bad(
            check, f"a verifier rejects a sample: {why}", f"Rotate the keys of {name}, and publish the new ones."
        )
    mend = f'Publish {wanted.host} TXT "{wanted.value}" and no other record there.'
    return bad(check, f"{wanted.host}: {status}", mend)


async def certificate(settings: Settings) -> DoctorFinding:
    """Check the certificate of incoming mail as senders that follow MTA-STS do (RFC 8461 4.2)."""
    host = settings.mail_host.lower()
    check = f"certificate of {host}"
    context = ssl.create_default_context()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            days = await certificate_days(settings, settings.mx_host, settings.mx_port, host, context)
    except ssl.SSLCertVerificationError as error:
        names = f"{variable('tls_cert')} and {variable('tls_key')}"
        mend = f"Set {names} to a valid certificate for {host}, with its chain."
        return bad(check, f"senders that follow MTA-STS refuse it: {error.verify_message}", mend)
    except OSError as error:
        return bad(check, f"no TLS session ({describe_error(error)})", f"Read {settings.state}/log/mx-1.log.")
    return good(check, f"trusted, valid for {days} more days")


async def _addresses(resolver: Resolver, name: str) -> list[str]:
    answers = (await resolver.addresses(name, "A"), await resolver.addresses(name, "AAAA"))
    return [value for answer in answers if isinstance(answer, Records) for value in answer.values]


async def _texts(resolver: Resolver, name: str) -> tuple[str, ...] | TemporaryFailure:
    answer = await resolver.txt(name)
    if isinstance(answer, TemporaryFailure):
        return answer
    return tuple(one.decode("utf-8", "replace") for one in answer.values) if isinstance(answer, Records) else ()
