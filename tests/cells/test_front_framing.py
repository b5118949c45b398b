"""A front reads the head and the framing of requests as a cell does: the tables of the cells' own tests hold for it."""

from collections.abc import Iterator

import pytest
from msgspec import structs

from engine.base.settings import Settings
from tests.cells.conftest import TestCells, front_settings
from tests.contracts.test_framing import ACCEPTED, BROKEN_OFF, ENVELOPE, MAX_BODY_BYTES, SERVER, chunked
from tests.harness.api import serving
from tests.harness.raw_http import exchange


@pytest.fixture(scope="module")
def front(cells: TestCells, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a front with small limits; its log must not show a traceback afterwards."""
    log = tmp_path_factory.mktemp("front-framing") / "front.log"
    small = structs.replace(settings, body_deadline_s=1, max_request_bytes=MAX_BODY_BYTES)
    with serving(front_settings(small, cells.directory_url), log, "create_front") as url:
        yield url
    written = log.read_text("utf-8", "replace")
    assert "Traceback" not in written
    assert "panicked" not in written


@pytest.mark.parametrize("name", ENVELOPE)
async def test_a_broken_request_is_refused_and_its_connection_ends(front: str, name: str) -> None:
    octets, status = ENVELOPE[name]
    found = await exchange(front, octets)

    assert [(one.status, one.error_type is not None) for one in found] == [(status, True)], found
    assert found[0].headers["connection"] == "close"
    assert found[0].headers["x-request-id"]


@pytest.mark.parametrize("name", BROKEN_OFF)
async def test_a_body_that_breaks_off_is_never_passed_on_as_a_whole_one(front: str, name: str) -> None:
    found = await exchange(front, BROKEN_OFF[name], ends=True)

    assert [(one.status, one.error_type) for one in found] == [(400, "invalid_request")], found


@pytest.mark.parametrize("name", SERVER)
async def test_what_the_server_refuses_itself_ends_the_connection(front: str, name: str) -> None:
    octets, status = SERVER[name]
    found = await exchange(front, octets)

    assert [(one.status, one.body) for one in found] == [(status, b"")], found


@pytest.mark.parametrize("name", ACCEPTED)
async def test_what_http_allows_is_answered_once_for_each_request(front: str, name: str) -> None:
    octets, statuses = ACCEPTED[name]
    found = await exchange(front, octets)

    assert [one.status for one in found] == statuses, found


async def test_a_body_that_never_ends_is_given_up(front: str) -> None:
    found = await exchange(front, chunked(b"ffff\r\nabcde"))

    assert [(one.status, one.error_type) for one in found] == [(400, "invalid_request")], found
