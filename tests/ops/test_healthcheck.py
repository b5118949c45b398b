"""The health check of containers: every process ready, or with `--alive` a supervisor that answers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ops.host import control, healthcheck
from ops.host.control import Refused, Say


def asked(state: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    given = {"STATE": str(state), "PROCESSES": "mta", "DATABASE_URL": "postgresql://db/w", "REDIS_URL": "redis://c",
             "KEY_PEPPER": "0" * 64}  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(f"WAYBILL_{name}", value)
    return healthcheck.main(words)


@pytest.mark.parametrize(("ready", "status"), [((True, True), 0), ((True, False), 1)])
async def test_a_host_is_healthy_while_all_its_processes_are_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: tuple[bool, ...], status: int
) -> None:
    async def act(question: dict[str, Any], say: Say) -> None:
        if question != {"do": "status"}:
            raise Refused("unknown")
        for number, one in enumerate(ready):
            await say({"process": {"name": f"mta-{number}", "ready": one}})

    async with control.answering(tmp_path, act):
        assert await asyncio.to_thread(asked, tmp_path, monkeypatch) == status
        assert await asyncio.to_thread(asked, tmp_path, monkeypatch, "--alive") == 0


def test_a_host_without_a_supervisor_is_neither_healthy_nor_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(tmp_path, monkeypatch) == 1
    assert asked(tmp_path, monkeypatch, "--alive") == 1
