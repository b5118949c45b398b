"""An installation for the doctor to look at, and what it found."""

import asyncio
from pathlib import Path

from engine.base.settings import load
from loadtests.ports import reserve_port
from ops.doctor import DoctorFinding, examine


def environ(state: Path, **more: object) -> dict[str, str]:
    """Variables of an installation of its own on free ports."""
    ports = {
        f"WAYBILL_{name}_PORT": reserve_port()
        for name in ("API", "METRICS", "SINK", "DNS", "MX", "SUBMISSION", "SUBMISSION_TLS")
    }
    return {name: str(value) for name, value in ({"WAYBILL_STATE": state} | ports | more).items()}


async def examined(variables: dict[str, str]) -> dict[str, DoctorFinding]:
    """The findings by check; every bad one says what to do, in a sentence."""
    found = await asyncio.to_thread(examine, load(variables))
    for finding in found:
        assert finding.found
        assert finding.ok == (finding.mend is None)
        assert finding.mend is None or finding.mend[0].isupper()
        assert finding.mend is None or finding.mend.endswith(".")
    assert len({finding.check for finding in found}) == len(found)
    return {finding.check: finding for finding in found}
