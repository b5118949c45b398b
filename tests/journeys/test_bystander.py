"""Real processes, ten sites, one of them a tarpit: the mail of the other nine arrives as if nothing was."""

import pytest

from loadtests.drill import bystander
from tests.harness.service import running

pytestmark = pytest.mark.journey

RATE, SECONDS = 20, 4.0
PATIENT_MS = 250.0  # a machine full of other tests makes ratios of a few milliseconds meaningless


@pytest.mark.exhaustive
@pytest.mark.timeout(170)
@pytest.mark.parametrize("habit", ["tarpit", "slow+60"])
async def test_a_site_that_hangs_delays_no_other(habit: str) -> None:
    with running(bystander.SETTINGS) as service:
        well, ill = await bystander.drill(service, rate=RATE, seconds=SECONDS, behaviours=[habit])

    assert ill.sent == ill.arrived == well.sent == RATE * SECONDS * (bystander.SITES - 1) / bystander.SITES
    assert ill.p95_ms <= max(bystander.WITHIN * well.p95_ms, PATIENT_MS)
