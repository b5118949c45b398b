"""The process `mx`: its certificate, its settings, its socket, and the supervisor."""

from pathlib import Path
from typing import Literal

import pytest

from engine.base.settings import BadSetting, Settings, SocketAddress, load, to_environ
from ops.doctor.listeners import incoming_mail
from ops.host import process_specs, sockets
from ops.processes.certificates import NoCertificate, configured, self_signed


def test_live_mode_without_a_certificate_uses_a_self_signed_one(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, delivery="live")
    assert configured(settings) is None
    certificate, key = self_signed(settings, "mx")
    assert key.stat().st_mode & 0o077 == 0
    assert self_signed(settings, "mx") == (certificate, key)


def test_a_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, tls_cert=tmp_path / "a.pem", tls_key=tmp_path / "b.pem")
    with pytest.raises(NoCertificate, match=r"WAYBILL_TLS_CERT names .*a\.pem"):
        configured(settings)


@pytest.mark.parametrize(("profile", "count"), [("full", 2), ("small", 1)])
def test_mail_comes_in_through_two_processes_unless_memory_is_short(
    profile: Literal["full", "small"], count: int, tmp_path: Path
) -> None:
    assert process_specs.mx_processes(Settings(state=tmp_path, profile=profile)) == count


@pytest.mark.parametrize("count", [0, 1, 3])
def test_there_are_as_many_mx_processes_as_wanted_and_they_share_a_socket(count: int, tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, profile="full", mx_workers=count)
    names = [spec.name for spec in process_specs.processes(settings) if spec.name.startswith("mx-")]
    assert names == [f"mx-{number}" for number in range(1, count + 1)]
    assert (sockets.SMTP in process_specs.socket_names(settings)) is (count > 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unix:/run/clamav/clamd.ctl", SocketAddress(path="/run/clamav/clamd.ctl")),
        ("127.0.0.1:3310", SocketAddress(host="127.0.0.1", port=3310)),
        ("[::1]:3310", SocketAddress(host="::1", port=3310)),
    ],
)
def test_the_socket_of_clamd_is_a_path_or_a_port(text: str, expected: SocketAddress) -> None:
    settings = load({"WAYBILL_CLAMD": text}).settings
    assert settings.clamd == expected
    assert load(to_environ(settings)).settings == settings


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WAYBILL_CLAMD", "unix:clamd.ctl"),
        ("WAYBILL_CLAMD", "clamd"),
        ("WAYBILL_CLAMD_REQUIRED", "true"),
        ("WAYBILL_RSPAMD_REQUIRED", "true"),
        ("WAYBILL_RSPAMD_URL", "127.0.0.1:11333"),
        ("WAYBILL_INBOUND_MAX_INFLIGHT_BYTES", "1048576"),
        ("WAYBILL_INBOUND_REJECT_SCORE", "high"),
    ],
)
def test_a_setting_of_incoming_mail_that_cannot_work_is_refused(name: str, text: str) -> None:
    with pytest.raises(BadSetting, match=name):
        load({name: text})


async def test_the_doctor_says_when_nothing_listens_for_incoming_mail(tmp_path: Path) -> None:
    [finding] = await incoming_mail(Settings(state=tmp_path, mx_port=1))
    assert not finding.ok
    [finding] = await incoming_mail(Settings(state=tmp_path, mx_workers=0))
    assert finding.ok
