"""Listed reporters: an address is one author, a domain all of its authors, and only a DKIM signature proves either."""

import pytest

from engine.base.settings import Settings
from engine.receiving.reports.rules import is_listed
from engine.receiving.reports.types import Reporter

LISTED = ("staff@mailbox.test", "fbl.provider.test")


@pytest.mark.parametrize(
    ("address", "signed_by", "listed"),
    [
        ("staff@mailbox.test", "mailbox.test", True),
        ("staff@mailbox.test", None, False),
        ("eve@mailbox.test", "mailbox.test", False),
        ("staff@x.mailbox.test", "mailbox.test", False),
        ("feedback@fbl.provider.test", "fbl.provider.test", True),
        ("feedback@a.fbl.provider.test", "provider.test", True),
        ("feedback@xfbl.provider.test", "provider.test", False),
        ("feedback@provider.test", "provider.test", False),
    ],
)
def test_a_listed_reporter_signs_its_reports(address: str, signed_by: str | None, *, listed: bool) -> None:
    assert is_listed(Reporter(address, signed_by), LISTED) is listed


def test_without_an_authenticated_author_nobody_is_listed() -> None:
    assert not is_listed(None, LISTED)


@pytest.mark.parametrize(
    ("address", "signed_by", "listed"),
    [
        ("feedback@arf.mail.yahoo.com", "arf.mail.yahoo.com", True),
        ("eve@yahoo.com", "yahoo.com", False),
        ("staff@hotmail.com", "hotmail.com", True),
        ("eve@hotmail.com", "hotmail.com", False),
        ("feedbackloop@comcastfbl.senderscore.net", "senderscore.net", True),
        ("eve@comcast.net", "comcast.net", False),
        ("eve@fastmail.com", "fastmail.com", False),
    ],
)
def test_the_default_lists_feedback_loops_and_no_mailboxes_of_people(
    address: str, signed_by: str, *, listed: bool
) -> None:
    assert is_listed(Reporter(address, signed_by), Settings().complaint_reporters) is listed
