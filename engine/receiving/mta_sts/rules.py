"""Compose hosted MTA-STS policies, compare DNS with them, and warn about what would lose mail. Pure; RFC 8461."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from engine.receiving.mta_sts.types import (
    DEFAULT_MAX_AGE_S,
    MIN_MAX_AGE_S,
    AliasStatus,
    HostedPolicyRow,
    ServedPolicy,
    StsFindings,
    StsMode,
    TxtStatus,
)

HOST_LABEL: Final = "mta-sts."
POLICY_PATH: Final = "/.well-known/mta-sts.txt"
_ID: Final = "%Y%m%d%H%M%S"
_FIELD: Final = re.compile(r"[ \t]*([A-Za-z0-9][A-Za-z0-9_.-]{0,31})=([!-:<>-~]+)[ \t]*")
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9]{1,32}")
_FINDINGS: Final = msgspec.json.Decoder(StsFindings)


def policy_text(policy: ServedPolicy, mail_hosts: Sequence[str]) -> str:
    """Return the text that the policy host serves (RFC 8461 3.2): the MX hosts alone, with CRLF line ends."""
    lines = ["version: STSv1", f"mode: {policy.mode}"]
    lines += [f"mx: {host}" for host in mail_hosts]
    return "\r\n".join([*lines, f"max_age: {policy.max_age_s}", ""])


def next_policy_id(before: str | None, at: datetime) -> str:
    """Return the id of a changed policy: the time, and larger than the id before it."""
    now = at.astimezone(UTC).strftime(_ID)
    if before is None or now > before:
        return now
    return (datetime.strptime(before, _ID).replace(tzinfo=UTC) + timedelta(seconds=1)).strftime(_ID)


def alias_status(found: Sequence[str], wanted: str) -> AliasStatus:
    """Compare the CNAME records of the policy host with the one to publish."""
    if not found:
        return "missing"
    return "ok" if tuple(found) == (wanted,) else "mismatch"


def txt_status(found: Sequence[str], policy_id: str) -> TxtStatus:
    """Compare the TXT records at `_mta-sts` with the policy's id (RFC 8461 3.1).

    `stale`: a valid record with another id. `invalid`: senders would ignore the records.
    """
    related = [one for one in found if one.startswith("v=STSv1")]
    if not related:
        return "missing"
    identity = _id_of(related[0]) if len(related) == 1 else None
    if identity is None:
        return "invalid"
    return "ok" if identity == policy_id else "stale"


def warnings_of(policy: HostedPolicyRow, findings: StsFindings) -> list[str]:
    """Return sentences about what is wrong, and what to do."""
    host, found = f"{HOST_LABEL}{policy.domain}", []
    if findings.mx_ours is False and policy.mode == "enforce":
        others = ", ".join(findings.foreign_mx) or "no server at all"
        found.append(
            f"The MX records of {policy.domain} name {others}, which the policy doesn't allow. In mode enforce, "
            "senders skip them. Change the MX records, or set mode to testing."
        )
    if findings.wildcard:
        found.append(f"{host} resolves by a wildcard record only. Publish the CNAME record itself.")
    if findings.txt == "stale":
        found.append(
            f"The TXT record of _mta-sts.{policy.domain} has another id than the policy, so senders keep the policy"
            f" that they know. Publish id={policy.policy_id}."
        )
    if findings.txt == "invalid":
        found.append(
            f"The TXT records of _mta-sts.{policy.domain} are not one valid record, so senders ignore them. Publish"
            f" only v=STSv1; id={policy.policy_id}"
        )
    if findings.certificate not in {"ok", "unreachable"} and findings.cname == "ok":
        found.append(
            f"{host} has no valid certificate ({findings.certificate}), so senders can't fetch the policy. Ask the"
            " operator of this service."
        )
    if policy.mode == "none" and policy.max_age_s > MIN_MAX_AGE_S:
        found.append(
            "To withdraw the policy, set mode none and maxAge 86400, wait until the earlier maxAge has passed, "
            "then remove the DNS records (RFC 8461 8.3)."
        )
    if findings.problem is not None:
        found.append(findings.problem)
    return found


def decoded(findings: str | None) -> StsFindings:
    """Decode stored findings; none, or unreadable ones, count as nothing found."""
    try:
        return StsFindings() if findings is None else _FINDINGS.decode(findings)
    except msgspec.DecodeError:
        return StsFindings()


def encoded(findings: StsFindings) -> str:
    """Encode findings as JSON text."""
    return msgspec.json.encode(findings).decode()


def served_domain(host: str) -> str | None:
    """Return the domain whose policy a request for this Host asks for; None for other hosts."""
    name = host.lower().partition(":")[0].removesuffix(".")
    return name.removeprefix(HOST_LABEL) or None if name.startswith(HOST_LABEL) else None


def changed(row: HostedPolicyRow | None, mode: StsMode, max_age_s: int | None) -> tuple[StsMode, int] | None:
    """Return (mode, maxAge) of the policy after a PUT, or None if it changes nothing."""
    before = DEFAULT_MAX_AGE_S if row is None else row.max_age_s
    after = (mode, before if max_age_s is None else max_age_s)
    return None if row is not None and after == (row.mode, row.max_age_s) else after


def _id_of(record: str) -> str | None:
    """Return the id in a TXT record, None if the record is not valid."""
    version, *fields = [part for part in record.split(";") if part.strip(" \t")]
    if version.strip(" \t") != "v=STSv1":
        return None
    found: dict[str, str] = {}
    for one in fields:
        match = _FIELD.fullmatch(one)
        if match is None:
            return None
        found.setdefault(match[1], match[2])
    identity = found.get("id", "")
    return identity if _PLAIN_ID.fullmatch(identity) else None
