"""The ASGI application. Granian calls the factory `create_app`; the ASGI lifespan opens and closes the services."""

import os
from typing import Any

import falcon
import falcon.asgi

from api.areas.compat import foreign_paths
from api.http import dispatch, framing, paths
from api.http.decode import set_query_aside
from api.http.forwarded import with_client
from api.http.stream import OpenRequests, open_connection
from api.lifespan import Lifespan
from api.routes import App
from engine.base.errors import Refusal
from engine.base.settings import Settings, load
from engine.store import service_time


def create_app(settings: Settings | None = None) -> App:
    """Return the application; settings are read from the environment unless given."""
    known = settings or _of_process()
    lifespan = Lifespan(known)
    app: App = ApiApp(known)
    app.add_middleware(dispatch.RequestId(known.public_url))
    app.add_middleware(lifespan)
    lifespan.app = app
    app.add_error_handler(falcon.HTTPError, foreign_paths.on_http_error)
    app.add_error_handler(Exception, dispatch.on_bug)
    app.resp_options.default_media_type = "application/json"
    return app


def _of_process() -> Settings:
    """Return the settings of a process that serves the application, after it has joined the installation's clock."""
    settings = load(os.environ).settings
    service_time.join(settings)
    return settings


class ApiApp(falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]):
    """Falcon without its own body handling: operations read the body after they have checked credentials and size."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._write_s = settings.stream_write_s
        self._max_request_bytes = settings.max_request_bytes
        self._proxies = settings.http_proxy_networks
        self._docs = dispatch.errors_page(settings.public_url)

    async def __call__(  # type: ignore[override]  # as in Falcon: its ASGI App overrides its WSGI App
        self, scope: Any, receive: Any, send: Any
    ) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if self._proxies:
            scope = with_client(scope, self._proxies)
        if scope["http_version"] == "1":  # Granian's name of HTTP/1.0; ASGI specifies "1.0"
            scope["http_version"] = "1.0"
        try:
            framing.check(scope, self._max_request_bytes)
            paths.make_routable(scope)
        except Refusal as refusal:
            await framing.answer(refusal, receive, send, self._docs)
            return
        set_query_aside(scope)
        connection = open_connection(scope, receive, send, self._write_s)
        OpenRequests.count += 1
        try:
            await connection.run(super().__call__(scope, _nothing_yet, connection.send))
            await connection.drain(scope["headers"])
        finally:
            OpenRequests.count -= 1


async def _nothing_yet() -> Any:
    """Return an empty first event: Falcon requests one before it does anything."""
    return {"type": "http.request", "body": b"", "more_body": True}
