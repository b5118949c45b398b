"""The line of `ops up` that says how programs on this machine send over SMTP."""

from pathlib import Path
from typing import Any

import pytest

from engine.base.settings import Settings
from ops.host.smtp_access import smtp_lines


@pytest.mark.parametrize(
    ("changes", "open_at"),
    [
        ({}, "127.0.0.1:2587"),
        ({"submission_host": "0.0.0.0"}, "127.0.0.1:2587"),
        ({"submission_host": "::1"}, "[::1]:2587"),
        ({"submission_host": "192.0.2.7"}, None),
        ({"submission_open": False}, None),
    ],
)
def test_local_mode_says_how_to_send_and_which_certificate_to_trust(
    tmp_path: Path, changes: dict[str, Any], open_at: str | None
) -> None:
    (line,) = smtp_lines(Settings(state=tmp_path, **changes))

    assert line.endswith(f"The certificate for programs that check it: {tmp_path}/relay/certificate.pem")
    assert (f"without TLS and login at {open_at}, from this machine alone" in line) is (open_at is not None)
    assert ("without TLS" in line) is (open_at is not None)


def test_live_mode_and_hosts_without_submission_say_nothing(tmp_path: Path) -> None:
    assert smtp_lines(Settings(state=tmp_path, delivery="live")) == []
    assert smtp_lines(Settings(state=tmp_path, relay_workers=0)) == []
