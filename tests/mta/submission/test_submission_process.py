"""The process `relay`: its certificate, its settings, and the supervisor."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from engine.base.settings import BadSetting, Settings, load, to_environ
from ops.host import process_specs
from ops.processes.certificates import NoCertificate
from ops.processes.relay import certificate_files


def test_local_mode_makes_a_certificate_once(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path)
    certificate, key = certificate_files(settings)
    assert key.stat().st_mode & 0o077 == 0
    made = certificate.read_bytes()
    assert certificate_files(settings) == (certificate, key)
    assert certificate.read_bytes() == made


def test_configured_files_are_used_in_either_mode(tmp_path: Path) -> None:
    certificate, key = tmp_path / "a.pem", tmp_path / "b.pem"
    for delivery in ("local", "live"):
        given = {"WAYBILL_TLS_CERT": str(certificate), "WAYBILL_TLS_KEY": str(key), "WAYBILL_DELIVERY": delivery}
        settings = load(given).settings
        with pytest.raises(NoCertificate, match="there is no such file"):
            certificate_files(settings)
        certificate.touch()
        key.touch()
        assert certificate_files(settings) == (certificate, key)
        assert process_specs.relays(settings) == 1
        certificate.unlink()


def test_paths_are_those_of_who_starts_the_service() -> None:
    settings = load({"WAYBILL_TLS_CERT": "a.pem", "WAYBILL_TLS_KEY": "b.pem"}).settings
    assert settings.tls_cert == Path("a.pem").absolute()


def test_live_mode_shows_no_self_made_certificate_and_has_no_relay_without_one(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, delivery="live")
    with pytest.raises(NoCertificate, match="WAYBILL_TLS_CERT"):
        certificate_files(settings)
    assert process_specs.relays(settings) == 0
    assert not any(spec.name.startswith("relay") for spec in process_specs.processes(settings))


def test_certificate_and_key_belong_together() -> None:
    with pytest.raises(BadSetting, match="WAYBILL_TLS_KEY"):
        load({"WAYBILL_TLS_CERT": "a.pem"})


def test_there_are_as_many_relays_as_wanted(tmp_path: Path) -> None:
    for count in (0, 1, 3):
        specs = process_specs.processes(Settings(state=tmp_path, profile="full", relay_workers=count))
        assert sum(spec.name.startswith("relay-") for spec in specs) == count


def test_trusted_networks_reach_the_process(tmp_path: Path) -> None:
    settings = load({"WAYBILL_PROXY_NETWORKS": "10.0.0.0/8, fd00::/8", "WAYBILL_SUBMISSION_HOST": "0.0.0.0"}).settings
    assert settings.proxy_networks == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert load(to_environ(settings)).settings == settings
    with pytest.raises(BadSetting, match="WAYBILL_PROXY_NETWORKS"):
        load({"WAYBILL_PROXY_NETWORKS": "10.0.0.1/8"})
