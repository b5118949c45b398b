"""`/.well-known/security.txt`: RFC 9116, from one setting."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from engine.base.settings import BadSetting, Settings, load
from tests.conftest import ServeApi
from tests.harness.api import Api

PATH = "/.well-known/security.txt"


async def test_without_a_contact_there_is_no_file(api: Api) -> None:
    assert (await api.get(PATH)).status == 404


@pytest.mark.parametrize(
    ("contact", "line"),
    [
        ("security@example.com", "mailto:security@example.com"),
        ("https://example.com/report?to=us", "https://example.com/report?to=us"),
    ],
)
async def test_it_names_contact_policy_and_end(serve: ServeApi, settings: Settings, contact: str, line: str) -> None:
    answer = await serve(structs.replace(settings, security_contact=contact)).get(
        PATH, headers=[("Accept-Encoding", "identity")]
    )
    fields = dict(row.split(": ", 1) for row in answer.body.decode().splitlines())
    left = datetime.fromisoformat(fields["Expires"]) - datetime.now(UTC)

    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert fields["Contact"] == line
    assert fields["Policy"].endswith("/docs/security")
    assert timedelta(days=170) < left < timedelta(days=365)


@pytest.mark.parametrize(
    "contact", ["http://example.com/report", "ann", "ann@example.com, ben@example.com", "https://"]
)
def test_a_contact_that_is_no_address_or_url_is_refused(contact: str) -> None:
    with pytest.raises(BadSetting, match="WAYBILL_SECURITY_CONTACT"):
        load({"WAYBILL_SECURITY_CONTACT": contact})
