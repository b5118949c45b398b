"""Name the common mistakes in published records: appended zones, several records where one is allowed. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import structs

from engine.sending.domains import records
from engine.sending.domains.records import Answers
from engine.sending.domains.types import CheckedRecord, Place, RecordFinding, WantedRecord

_MAX_NAME: Final = 253  # RFC 1035 3.1, without the final dot
_PROTOCOLS: Final = {
    "dkim": "DKIM", "return_path": "SPF", "dmarc": "DMARC", "mta_sts": "MTA-STS", "tls_rpt": "TLS reporting",
}  # fmt: skip


def appended_places(checks: Sequence[CheckedRecord], name: str) -> set[Place]:
    """Return where the missing records are if the DNS host appended the zone to names that already had it."""
    return {place for one in checks if _is_missing(one) for place in _appended(one.wanted, name)}


def located(checks: Sequence[CheckedRecord], name: str, answers: Answers) -> list[CheckedRecord]:
    """Return the checks, with the name in `finding.appended` where a missing record was found at an appended name."""
    return [_located(one, name, answers) if _is_missing(one) else one for one in checks]


def mistake(wanted: WantedRecord, finding: RecordFinding, name: str) -> str | None:
    """Return the sentence that says what is wrong with a published record of the domain, and how to correct it."""
    if finding.status == "ok":
        return None
    if finding.appended is not None:
        zone = finding.appended.removeprefix(f"{wanted.host}.")
        short = wanted.host.removesuffix(zone).rstrip(".") or "@"
        return (
            f"The record is at {finding.appended}: the DNS host appended {zone} to the name. Enter the name there as"
            f" {short}."
        )
    return _several(wanted, finding.found) or _appended_target(wanted, finding.found, name)


def _is_missing(check: CheckedRecord) -> bool:
    finding = check.finding
    return finding.status == "missing" and finding.problem is None and not check.wanted.by_operator


def _located(check: CheckedRecord, name: str, answers: Answers) -> CheckedRecord:
    for place in _appended(check.wanted, name):
        found = answers.get(place)
        if found and records.status_of(check.wanted, found) == "ok":
            return structs.replace(check, finding=structs.replace(check.finding, appended=place[1]))
    return check


def _several(wanted: WantedRecord, found: Sequence[str]) -> str | None:
    if wanted.type != "TXT":
        return None
    same = found if wanted.purpose == "dkim" else records.relevant(wanted, found)
    if len(same) < 2:
        return None
    kind = _PROTOCOLS[wanted.purpose]
    return f"There are {len(same)} {kind} records at {wanted.host}; receivers then use none of them. Leave one."


def _appended_target(wanted: WantedRecord, found: Sequence[str], name: str) -> str | None:
    if wanted.type == "TXT":
        return None
    target = wanted.value.split()[-1]
    targets = {one.split()[-1] for one in found}
    for zone in _zones(name):
        if f"{target}.{zone}" in targets:
            return f"The DNS host appended {zone} to the target. End the target with a full stop: {target}."
    return None


def _appended(wanted: WantedRecord, name: str) -> Iterator[Place]:
    hosts = [f"{wanted.host}.{zone}" for zone in _zones(name)]
    return ((wanted.type, host) for host in hosts if len(host) <= _MAX_NAME)


def _zones(name: str) -> list[str]:
    """Return the zones in which the records of a domain may be."""
    return [name, *records.ancestors(name)]
