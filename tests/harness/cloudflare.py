"""A server that behaves as version 4 of Cloudflare's API does: tokens, zones, DNS records, pages, and its moods.

What it takes for granted and what it refuses is taken from the public description of the API: bearer tokens, the
`{success, errors, messages, result, result_info}` envelope with its error codes, exact `name` filters, TXT content
kept as it was sent, 81058 for an identical record, 81053 where an alias is in the way.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web
from msgspec import Struct

TOKEN = "Ab3-dEfGh_1jKlMnOpQrStUvWxYz0123456789ab"
READ_ONLY = "Ro3-dEfGh_1jKlMnOpQrStUvWxYz0123456789ab"
MAX_PAGE = 100


class Mood(Struct):
    """A fault of the server; the first `after` requests are answered normally."""

    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = {}
    delay_s: float = 0.0
    after: int = 0
    methods: tuple[str, ...] = ("GET", "POST", "PUT", "PATCH")


class CloudflareServer:
    """The server: `async with CloudflareServer() as server:`, then `server.url`, `server.zone(...)`."""

    def __init__(self) -> None:
        self.records: dict[str, list[dict[str, Any]]] = {}  # by zone id
        self.requests: list[tuple[str, str]] = []  # method and path with query
        self.headers: list[dict[str, str]] = []
        self.tokens = {TOKEN, READ_ONLY}
        self.mood: Mood | None = None
        self.page_size = MAX_PAGE  # the most rows of a page, whatever is asked for
        self._zones: dict[str, str] = {}  # name to id
        self._count = 0
        self._runner: web.AppRunner | None = None

    # -- what it holds -------------------------------------------------------------------------

    def zone(self, name: str) -> str:
        """A zone that every token sees; its id."""
        zone_id = f"{len(self._zones):032x}"
        self._zones[name] = zone_id
        self.records[zone_id] = []
        return zone_id

    def put(self, zone: str, kind: str, name: str, content: str, **more: Any) -> dict[str, Any]:
        """Add a record as if its owner had made it by hand."""
        return self._add(zone, {"type": kind, "name": name, "content": content, **more})

    def held(self, zone: str) -> dict[tuple[str, str], list[str]]:
        """Contents by type and name."""
        found: dict[tuple[str, str], list[str]] = {}
        for record in self.records[zone]:
            found.setdefault((record["type"], record["name"]), []).append(record["content"])
        return found

    def calls(self) -> Counter[str]:
        """Requests by method."""
        return Counter(method for method, _ in self.requests)

    # -- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._door])
        app.router.add_get("/client/v4/zones", self._list_zones)
        app.router.add_get("/client/v4/zones/{zone}/dns_records", self._list)
        app.router.add_post("/client/v4/zones/{zone}/dns_records", self._create)
        app.router.add_patch("/client/v4/zones/{zone}/dns_records/{id}", self._change)
        app.router.add_put("/client/v4/zones/{zone}/dns_records/{id}", self._change)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    # -- answering -----------------------------------------------------------------------------

    @web.middleware
    async def _door(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.requests.append((request.method, str(request.rel_url)))
        self.headers.append(dict(request.headers))
        mood = self.mood
        if mood is not None and request.method in mood.methods:
            if mood.after:
                mood.after -= 1
            else:
                await asyncio.sleep(mood.delay_s)
                if mood.body is not None or mood.status != 200:
                    return web.Response(status=mood.status, body=mood.body, headers=mood.headers)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or len(token) < 20:
            return _refused(400, 6003, "Invalid request headers")
        if token not in self.tokens:
            return _refused(403, 9109, "Invalid access token")
        if token == READ_ONLY and request.method != "GET":
            return _refused(403, 10000, "Authentication error")
        return await handler(request)

    async def _list_zones(self, request: web.Request) -> web.Response:
        wanted = request.query.get("name")
        zones = [
            {"id": zone_id, "name": name, "status": "active", "paused": False}
            for name, zone_id in self._zones.items()
            if wanted in {None, name}
        ]
        return self._page(request, zones)

    async def _list(self, request: web.Request) -> web.Response:
        found = self.records.get(request.match_info["zone"])
        if found is None:
            return _refused(404, 7003, "Could not route to the zone")
        for field in ("name", "type"):
            if field in request.query:
                found = [one for one in found if one[field].lower() == request.query[field].lower()]
        return self._page(request, found)

    async def _create(self, request: web.Request) -> web.Response:
        zone = request.match_info["zone"]
        body = await request.json()
        refusal = self._refusal(zone, body, but=None)
        return refusal or _answer(self._add(zone, body))

    async def _change(self, request: web.Request) -> web.Response:
        zone = request.match_info["zone"]
        record = next((one for one in self.records[zone] if one["id"] == request.match_info["id"]), None)
        if record is None:
            return _refused(404, 81044, "Record does not exist.")
        body = await request.json()
        refusal = self._refusal(zone, record | body, but=record["id"])
        if refusal is not None:
            return refusal
        record.update(body)
        return _answer(record)

    def _refusal(self, zone: str, body: dict[str, Any], *, but: str | None) -> web.Response | None:
        if not {"type", "name", "content"} <= set(body) or not isinstance(body["content"], str):
            return _refused(400, 9005, "Content for the record is invalid.")
        if len(body.get("comment") or "") > 100:
            return _refused(400, 9207, "Comment is too long.")
        if body["type"] == "MX" and not isinstance(body.get("priority"), int):
            return _refused(400, 9007, "Priority is required for this record type.")
        others = [one for one in self.records[zone] if one["name"] == body["name"] and one["id"] != but]
        if any((one["type"], one["content"]) == (body["type"], body["content"]) for one in others):
            return _refused(400, 81058, "An identical record already exists.")
        if any(one["type"] == "CNAME" or body["type"] == "CNAME" for one in others):
            return _refused(400, 81053, "An A, AAAA, or CNAME record with that host already exists.")
        return None

    def _add(self, zone: str, body: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        record = {"id": f"{self._count:032x}", "comment": None, "ttl": 1, "proxied": False, **body}
        self.records[zone].append(record)
        return record

    def _page(self, request: web.Request, rows: list[dict[str, Any]]) -> web.Response:
        page, size = int(request.query.get("page", "1")), int(request.query.get("per_page", "20"))
        if not 0 < size <= 5_000_000 or page < 1:
            return _refused(400, 9300, "Invalid page")
        size = min(size, self.page_size)
        part = rows[(page - 1) * size : page * size]
        pages = max(1, -(-len(rows) // size))
        info = {"page": page, "per_page": size, "count": len(part), "total_count": len(rows), "total_pages": pages}
        return _answer(part, result_info=info)


def _answer(result: object, **more: object) -> web.Response:
    return web.json_response({"success": True, "errors": [], "messages": [], "result": result, **more})


def _refused(status: int, code: int, message: str) -> web.Response:
    envelope = {"success": False, "errors": [{"code": code, "message": message}], "messages": [], "result": None}
    return web.Response(status=status, body=json.dumps(envelope).encode(), content_type="application/json")
