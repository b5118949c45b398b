"""The gauge of open requests counts a request from its arrival to the end of its answer."""

from typing import Any

import falcon.testing

from api.app import ApiApp
from api.http.stream import OpenRequests
from engine.base.settings import Settings


async def test_a_request_is_open_until_it_is_answered() -> None:
    before = OpenRequests.count
    seen: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Any) -> None:
        seen.append(OpenRequests.count - before)

    await ApiApp(Settings())(falcon.testing.create_scope(path="/nowhere"), receive, send)

    assert set(seen) == {1}
    assert OpenRequests.count == before
