"""Answer fronts and other cells: whose a key is. Only with the credential that all cells of the installation share."""

import hmac

import falcon
import falcon.asgi
import msgspec
import structlog

from api.http import auth, dispatch, visiting_operator
from api.http.services import ApiServices
from api.http.stream import connection_of
from api.http.visiting_operator import Errand
from engine.base import clock
from engine.base.errors import Refusal
from engine.cells import ask, overview, whose
from engine.cells.locator import WhoseReply
from engine.cells.whose import Key
from engine.store.database_errors import DatabaseUnavailable
from engine.store.deadlines import within

MAX_BODY_BYTES = 8_192
DEADLINE_S = 2.0

_decoder = msgspec.json.Decoder(Key)
_errands = msgspec.json.Decoder(Errand)
_log = structlog.get_logger("cells")


def is_internal(request: falcon.asgi.Request, accepted: tuple[str, ...]) -> bool:
    """Return True if the request has the credential of the installation's cells."""
    given = (request.get_header("Authorization") or "").encode("latin-1", "replace")
    return any(hmac.compare_digest(given, f"Bearer {one}".encode()) for one in accepted)


class Whose:
    """`POST /internal/whose`."""

    def __init__(self, services: ApiServices) -> None:
        self._pool = services.pool
        self._accepted = ask.credentials(services.settings.pepper)

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer whether the key is here and which account has it; 404 for everybody but fronts and cells."""
        if not is_internal(request, self._accepted):
            raise falcon.HTTPNotFound
        try:
            with within(DEADLINE_S):
                key = _decoder.decode(await _body(request))
                owner = await whose.owner_of(self._pool, key)
        except (msgspec.DecodeError, Refusal):
            response.status = falcon.HTTP_400
            return
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("key not looked up", error=repr(error))
            response.status = falcon.HTTP_503
            return
        reply = WhoseReply(here=owner is not None, account_id=None if owner is None else owner.account_id)
        response.data = msgspec.json.encode(reply)


class OwnFigures:
    """`GET /internal/cell`."""

    def __init__(self, services: ApiServices) -> None:
        self._pool = services.pool
        self._accepted = ask.credentials(services.settings.pepper)

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer the figures of this cell; 404 for everybody but fronts, cells and their operators' tools."""
        if not is_internal(request, self._accepted):
            raise falcon.HTTPNotFound
        try:
            with within(DEADLINE_S):
                response.data = msgspec.json.encode(await overview.own_figures(self._pool))
        except (DatabaseUnavailable, OSError):
            response.status = falcon.HTTP_503


class VouchForOperator:
    """`POST /internal/operator`: the front passes the operator's cookie and CSRF token on."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._accepted = ask.credentials(services.settings.pepper)
        self._docs = dispatch.errors_page(services.settings.public_url)

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer the statement for the other cell, or the refusal of this one."""
        if not is_internal(request, self._accepted):
            raise falcon.HTTPNotFound
        settings = self._services.settings
        try:
            with within(DEADLINE_S):
                errand = _errands.decode(await _body(request))
                person = await self._services.sessions.person(auth.session_secret(request), auth.device(request))
            if person is None:
                raise auth.sign_in_required()
            auth.check_operator(settings, person)
            if errand.method != "GET":
                auth.check_csrf(person, request.get_header(auth.CSRF_HEADER))
        except Refusal as refusal:
            response.status, response.data = refusal.status, msgspec.json.encode(refusal.envelope(self._docs))
        except (DatabaseUnavailable, OSError, msgspec.DecodeError):
            response.status = falcon.HTTP_503
        else:
            response.text = visiting_operator.vouch(settings.pepper, person, errand, clock.machine_now())


async def _body(request: falcon.asgi.Request) -> bytes:
    """Return the body, cut off where it becomes too long to be a question."""
    connection, read = connection_of(request.scope), bytearray()
    while len(read) < MAX_BODY_BYTES and (piece := await connection.more()):
        read += piece
    return bytes(read)
