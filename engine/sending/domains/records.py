"""Build the DNS records of a sending domain and compare them with the answers of DNS. Pure.

Only the DKIM record of the signing RSA key is required: it lets receivers attribute the mail to the domain (RFC 6376),
and DMARC needs only one of aligned DKIM and aligned SPF (RFC 7489 3.1). SPF can't be required of the domain, because
receivers check it on the return path (RFC 7208 2.4), which is in the service's bounce domain. DMARC, MX, MTA-STS and
TLS reports are optional.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
from msgspec import structs

from engine.base import clock
from engine.mail.address import MAX_ADDRESS
from engine.sending.domains import drift
from engine.sending.domains.reports import report_address
from engine.sending.domains.suffixes import is_registry_name
from engine.sending.domains.types import (
    DEFAULT_RETURN_PATH_LABEL,
    CheckedRecord,
    DomainKeyRow,
    DomainRow,
    MailHostIdentity,
    Place,
    RecordFinding,
    RecordStatus,
    RecordType,
    WantedRecord,
)

Answers = Mapping[Place, tuple[str, ...] | None]  # None: no usable answer

MX_PREFERENCE: Final = 10
MAX_RETURN_PATH_LOCAL: Final = 43  # octets of `b+<token>@`, see engine.mail.return_path
MAX_ANCESTORS: Final = 4
NO_ANSWER: Final = "DNS gave no usable answer; this is the result of an earlier check. Check again in a minute."
_SPACE: Final = re.compile(r"\s+")
_POLICIES: Final = {"none", "quarantine", "reject"}  # RFC 7489 6.3
_FINDINGS: Final = msgspec.json.Decoder(dict[str, RecordFinding])


def bounce_domain(mail_host: str) -> str:
    """Return the domain of all return paths."""
    return f"bounces.{mail_host}"


def wanted_records(
    domain: UUID,
    name: str,
    created_at: datetime,
    keys: Iterable[DomainKeyRow],
    identity: MailHostIdentity,
    *,
    return_path_label: str = DEFAULT_RETURN_PATH_LABEL,
    sts_policy_id: str | None = None,
) -> list[WantedRecord]:
    """Return every record of the domain's set-up, signing keys first."""
    host = identity.mail_host
    bounces = bounce_domain(host)
    by_service = "The operator of this service publishes it for all domains; you need not. Bounces go there."
    dmarc = report_address(identity.report_key, "dmarc", domain, host)
    tls = report_address(identity.report_key, "tls", domain, host)
    return_path: list[tuple[RecordType, str]] = [("TXT", f"v=spf1 a:{host} -all"), ("MX", f"{MX_PREFERENCE} {host}")]
    return [
        *sorted((key_record(name, key) for key in keys), key=lambda one: (not one.required, one.host)),
        *_return_path(f"{return_path_label}.{name}", bounces),
        *[
            WantedRecord(kind, bounces, value, required=False, purpose="return_path", note=by_service, by_operator=True)
            for kind, value in return_path
        ],
        WantedRecord(
            "TXT", f"_dmarc.{name}", f"v=DMARC1; p=none; rua=mailto:{dmarc}", required=False, purpose="dmarc",
            note="A suggestion; any DMARC policy will do. Reports to this address go into your statistics.",
        ),
        WantedRecord(
            "MX", name, f"{MX_PREFERENCE} {host}", required=False, purpose="inbound",
            note="Only to receive mail here: it replaces other mail servers of the domain.",
        ),
        WantedRecord(
            "TXT", f"_mta-sts.{name}", f"v=STSv1; id={sts_policy_id or f'{created_at:%Y%m%d%H%M%S}'}", required=False,
            purpose="mta_sts",
            note="Only once the domain has an MTA-STS policy here, and together with the MX record and the CNAME below"
            " (RFC 8461).",
        ),
        WantedRecord(
            "CNAME", f"mta-sts.{name}", f"mta-sts.{host}", required=False, purpose="mta_sts",
            note="Sending servers fetch the MTA-STS policy of the domain from here.",
        ),
        WantedRecord(
            "TXT", f"_smtp._tls.{name}", f"v=TLSRPTv1; rua=mailto:{tls}", required=False, purpose="tls_rpt",
            note="Reports on encrypted delivery to the domain's mail server (RFC 8460).",
        ),
    ]  # fmt: skip


def _return_path(host: str, bounces: str) -> list[WantedRecord]:
    """Return the record of the domain's own return paths; none where addresses at the host would be too long."""
    if MAX_RETURN_PATH_LOCAL + len(host) > MAX_ADDRESS:
        return []
    note = "Bounces of the domain's mail then go through the domain itself, so that SPF aligns for DMARC too."
    return [WantedRecord("CNAME", host, bounces, required=False, purpose="return_path", note=note)]


def wanted_of(domain: DomainRow, keys: Iterable[DomainKeyRow], identity: MailHostIdentity) -> list[WantedRecord]:
    """Return every record of the set-up of a stored domain."""
    return wanted_records(
        domain.id,
        domain.name,
        domain.created_at,
        keys,
        identity,
        return_path_label=domain.return_path_label,
        sts_policy_id=domain.sts_policy_id,
    )


def key_record(name: str, key: DomainKeyRow) -> WantedRecord:
    """Return the TXT record of one key; it is required if it is the RSA key that signs."""
    return WantedRecord(
        "TXT",
        f"{key.selector}._domainkey.{name}",
        key.public_txt,
        required=key.is_rsa and key.status == "active",
        purpose="dkim",
        selector=key.selector,
        note=_key_note(key),
    )


def places(wanted: Sequence[WantedRecord], name: str) -> set[Place]:
    """Return everything to look up in one check: the records, and parents with a DMARC policy to inherit."""
    return {one.place for one in wanted} | {("TXT", f"_dmarc.{above}") for above in ancestors(name)}


def checked(
    wanted: Sequence[WantedRecord], name: str, answers: Answers, before: Mapping[str, RecordFinding]
) -> list[CheckedRecord]:
    """Return each record with its finding; without a DNS answer, with the earlier finding and the problem."""
    return [CheckedRecord(one, _finding(one, name, answers, before.get(_key(one)))) for one in wanted]


def known(wanted: Sequence[WantedRecord], findings: str | None) -> list[CheckedRecord]:
    """Return each record with the finding of the last check, without DNS queries; new records are missing."""
    found = decoded(findings)
    return [CheckedRecord(one, _as_of_now(one, found.get(_key(one), RecordFinding()))) for one in wanted]


def decoded(findings: str | None) -> dict[str, RecordFinding]:
    """Decode the findings stored by `encoded`; unreadable ones count as none and are rewritten by the next check."""
    try:
        return {} if findings is None else _FINDINGS.decode(findings)
    except msgspec.DecodeError:
        return {}


def encoded(checks: Sequence[CheckedRecord]) -> str:
    """Encode the findings as JSON text, to store with the domain."""
    return msgspec.json.encode({_key(check.wanted): check.finding for check in checks}).decode()


def status_of(wanted: WantedRecord, answers: tuple[str, ...]) -> RecordStatus:
    """Return whether the records at the host serve the purpose of the wanted one.

    Answers are as `lookups` returns them.
    """
    if not answers:
        return "missing"
    if wanted.purpose == "dkim":
        return "ok" if _same_key(wanted.value, answers) else "mismatch"
    if wanted.type == "MX":
        mine = {answer.split()[-1] for answer in answers}
        return "ok" if wanted.value.split()[-1] in mine else "mismatch"
    if wanted.type == "CNAME":
        return "ok" if answers == (wanted.value,) else "mismatch"
    related = relevant(wanted, answers)
    if not related:
        return "missing"
    # Several records count as none: RFC 7489 6.6.3, RFC 8461 3.1, RFC 8460 3, RFC 7208 4.5.
    return "ok" if len(related) == 1 and _does(wanted, related[0]) else "mismatch"


def relevant(wanted: WantedRecord, answers: Iterable[str]) -> list[str]:
    """Return the TXT records of the same protocol as the wanted one, by their version tag."""
    version = wanted.value.partition(";")[0].split()[0].lower()
    return [one for one in answers if re.split(r"[;\s]", one.strip().lower(), maxsplit=1)[0] == version]


def tags(text: str) -> dict[str, str]:
    """Parse a tag list (RFC 6376 3.2) into names and values without white space; the first of repeated tags counts."""
    found: dict[str, str] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if equals:
            found.setdefault(name.strip(), _SPACE.sub("", value))
    return found


def _same_key(wanted: str, answers: tuple[str, ...]) -> bool:
    """Return True if there is one record and verifiers read it as our key.

    With several records, the result is undefined (RFC 6376 3.6.2.2).
    """
    if len(answers) != 1:
        return False
    names = [one.partition("=")[0].strip() for one in answers[0].split(";") if "=" in one]
    if len(set(names)) != len(names) or "v" in names[1:]:  # RFC 6376 3.2: no tag twice; 3.6.1: `v=` is the first
        return False
    ours, theirs = tags(wanted), tags(answers[0])
    return (
        theirs.get("v", "DKIM1") == "DKIM1"
        and theirs.get("k", "rsa") == ours["k"]
        and theirs.get("p") == ours["p"]
        and "sha256" in theirs.get("h", "sha256").split(":")
        and bool({"*", "email"} & set(theirs.get("s", "*").split(":")))
    )


def _does(wanted: WantedRecord, found: str) -> bool:
    if wanted.purpose == "dmarc":
        return tags(found).get("p", "").lower() in _POLICIES
    if wanted.purpose == "tls_rpt":
        return bool(tags(found).get("rua"))
    if wanted.purpose == "mta_sts":
        return tags(found).get("id") == tags(wanted.value)["id"]
    return wanted.value.split()[1].lower() in found.lower().split()  # SPF: the mechanism with our host


def _finding(wanted: WantedRecord, name: str, answers: Answers, before: RecordFinding | None) -> RecordFinding:
    found = answers[wanted.place]
    earlier = before or RecordFinding()
    if found is None:
        return structs.replace(_as_of_now(wanted, earlier), problem=NO_ANSWER)
    if wanted.purpose == "dmarc" and not relevant(wanted, found):
        return drift.carried(wanted, earlier, _inherited(wanted, name, answers) or RecordFinding("missing", found))
    return drift.carried(wanted, earlier, RecordFinding(status_of(wanted, found), found))


def _as_of_now(wanted: WantedRecord, before: RecordFinding) -> RecordFinding:
    """Evaluate an earlier finding against the record wanted now, because keys change."""
    if wanted.purpose == "dmarc":  # any policy will do, and it may be inherited
        return before
    return structs.replace(before, status=status_of(wanted, before.found))


def _inherited(wanted: WantedRecord, name: str, answers: Answers) -> RecordFinding | None:
    """Return the DMARC policy inherited from a parent (RFC 7489 6.6.3); a separate one would weaken it."""
    for above in ancestors(name):
        found = answers[("TXT", f"_dmarc.{above}")]
        if found is None:
            return RecordFinding("missing", (), NO_ANSWER)
        related = relevant(wanted, found)
        if len(related) == 1:
            return RecordFinding("ok", (f"_dmarc.{above}: {related[0]}",))
    return None


def ancestors(name: str) -> list[str]:
    """Return the parent names, down to two labels, except registry names."""
    labels = name.split(".")
    above = [".".join(labels[start:]) for start in range(1, len(labels) - 1)]
    return [one for one in above if not is_registry_name(one)][-MAX_ANCESTORS:]


def _key_note(key: DomainKeyRow) -> str | None:
    if key.status == "standby":
        return "Not in use yet. If you publish it now, the next key rotation needs no action."
    if key.status == "retiring" and key.retire_at is not None:
        return f"No longer signs. Keep it published until {clock.iso(key.retire_at)}, for mail in transit."
    if key.status == "pending" and key.is_rsa:
        return "Signing moves to this key as soon as a check finds the record."
    if not key.is_rsa:
        return "A second signature, for receivers that support Ed25519 (RFC 8463); added while the record is published."
    return None


def _key(wanted: WantedRecord) -> str:
    return f"{wanted.type} {wanted.host}"
