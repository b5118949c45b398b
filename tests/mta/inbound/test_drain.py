"""The drain of the server for incoming mail."""

import asyncio

import pytest

from engine.base.settings import Settings
from mta.smtp.server import aiosmtpd_session
from tests.harness.inbound import receiving
from tests.harness.patience import PATIENCE_S


async def test_a_drain_does_not_wait_for_tls_clients_that_do_not_read(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiosmtpd_session, "CLOSE_S", 10 * PATIENCE_S)
    async with receiving(settings, tmp_path_factory.mktemp("mx")) as mx:
        client = await mx.greeted(tls=True)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(PATIENCE_S):
            await mx.services.server.drain(10 * PATIENCE_S)
        assert mx.services.server.sessions == 0


async def test_a_drain_does_not_wait_for_handshakes(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiosmtpd_session, "DRAIN_HANDSHAKE_S", 0.1)
    async with receiving(settings, tmp_path_factory.mktemp("mx")) as mx:
        client = await mx.greeted()
        assert (await client.say("STARTTLS")).startswith("220 ")
        async with asyncio.timeout(PATIENCE_S):
            await mx.services.server.drain(10 * PATIENCE_S)
        assert mx.services.server.sessions == 0
        assert await client.reader.read() == b""  # no reply in clear text in the middle of the handshake


async def test_a_handshake_that_takes_too_long_frees_its_seat(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiosmtpd_session, "HANDSHAKE_S", 0.1)
    async with receiving(settings, tmp_path_factory.mktemp("mx")) as mx:
        client = await mx.greeted()
        assert (await client.say("STARTTLS")).startswith("220 ")
        async with asyncio.timeout(PATIENCE_S):
            assert await client.reader.read() == b""
            while mx.services.server.sessions:
                await asyncio.sleep(0.01)
