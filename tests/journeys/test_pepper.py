"""The key pepper of a service with embedded servers is changed: keys, signatures and links of before go on working."""

import asyncio

import aiohttp
import pytest

from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from tests.harness.api import Api
from tests.harness.service import arrived, command, new_access, octets, running, send, until_status, verifies

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300)]  # three starts of a service


async def test_the_pepper_is_changed_by_setting_its_file_aside() -> None:
    with running() as service:
        access = await new_access(service)
        old = (service.state / "pepper").read_text()
        service.stop()
        (service.state / "pepper").rename(service.state / "pepper-previous")
        service.start()
        assert (service.state / "pepper").read_text() != old

        await delivered(service, access, "ann@people.test")
        assert service.stop() == 0  # which writes the digest of the key that was used
        (service.state / "pepper-previous").unlink()
        service.start()
        await delivered(service, access, "bob@people.test")
        for address in ("ann@people.test", "bob@people.test"):
            (entry,) = arrived(service, address)
            assert verifies(octets(service, entry), service)
        told = await asyncio.to_thread(command, service, "doctor", "--json")
        (finding,) = [one for one in told.json if one["check"] == "stored secrets"]
        assert not finding["ok"]
        assert finding["found"].endswith(": API keys (1)")  # that of the first run, which nobody used since


async def delivered(service: Service, access: ApiAccess, address: str) -> None:
    """Send a message over a connection of its own, as the restarts close those of before."""
    async with aiohttp.ClientSession() as http:
        api = Api(service.base_url, http)
        await until_status(api, access, await send(api, access, address), "delivered")
