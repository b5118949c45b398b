"""Mistakes in published records that a check names."""

import pytest

from engine.sending.domains.mistakes import appended_places, mistake
from engine.sending.domains.types import CheckedRecord, Purpose, RecordFinding, RecordType, WantedRecord

NAME = "mail.shop.example.com"
ALIAS = "bounces.mail.waybill.test"


def wanted(kind: RecordType, value: str, purpose: Purpose = "return_path") -> WantedRecord:
    return WantedRecord(kind, f"bounce.{NAME}", value, required=False, purpose=purpose)


@pytest.mark.parametrize(
    ("record", "found", "expected"),
    [
        (wanted("TXT", "v=spf1 a -all"), ("v=spf1 a -all", "v=spf1 mx -all", "other"), "There are 2 SPF records at"),
        (wanted("TXT", "v=DMARC1; p=none", "dmarc"), ("v=DMARC1; p=none",) * 2, "There are 2 DMARC records at"),
        (wanted("TXT", "v=DKIM1; p=A", "dkim"), ("v=DKIM1; p=A", "v=DKIM1; p=B"), "There are 2 DKIM records at"),
        (wanted("CNAME", ALIAS), (f"{ALIAS}.example.com",), "appended example.com to the target."),
        (wanted("MX", f"10 {ALIAS}"), (f"10 {ALIAS}.{NAME}",), f"End the target with a full stop: {ALIAS}."),
        (wanted("CNAME", ALIAS), ("elsewhere.test",), None),
        (wanted("TXT", "v=spf1 a -all"), ("other", "another"), None),
    ],
)
def test_a_mistake_is_named_with_its_remedy(record: WantedRecord, found: tuple[str, ...], expected: str | None) -> None:
    told = mistake(record, RecordFinding("mismatch", found), NAME)

    assert told is None if expected is None else expected in str(told)
    assert mistake(record, RecordFinding("ok", found), NAME) is None


def test_a_missing_record_is_looked_for_under_every_zone_that_may_hold_it() -> None:
    missing = CheckedRecord(wanted("CNAME", ALIAS), RecordFinding())
    hosts = {host for _, host in appended_places([missing], NAME)}
    host = f"bounce.{NAME}"
    assert hosts == {f"{host}.{NAME}", f"{host}.shop.example.com", f"{host}.example.com"}

    told = mistake(missing.wanted, RecordFinding(appended=f"{host}.example.com"), NAME)
    assert "Enter the name there as bounce.mail.shop." in str(told)
