"""Answer fronts and other cells: whose a key is. Only with the credential that all cells of the installation share."""

import hmac
from collections.abc import Awaitable, Callable

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


class _Internal:
    """An operation for fronts, cells and their operators' tools; everybody else gets a 404."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._accepted = ask.credentials(services.settings.pepper)
        self._docs = dispatch.errors_page(services.settings.public_url)

    async def _answer(
        self,
        request: falcon.asgi.Request,
        response: falcon.asgi.Response,
        answer: Callable[[falcon.asgi.Request], Awaitable[bytes]],
    ) -> None:
        """Answer with what `answer` returns in time, with its refusal, or 503."""
        if not is_internal(request, self._accepted):
            raise falcon.HTTPNotFound
        try:
            with within(DEADLINE_S):
                response.data = await answer(request)
        except msgspec.DecodeError:
            response.status = falcon.HTTP_400
        except Refusal as refusal:
            response.status, response.data = refusal.status, msgspec.json.encode(refusal.envelope(self._docs))
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("internal question not answered", path=request.path, error=repr(error))
            response.status = falcon.HTTP_503


class Whose(_Internal):
    """`POST /internal/whose`."""

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer whether the key is here and which account has it."""
        await self._answer(request, response, self._owner)

    async def _owner(self, request: falcon.asgi.Request) -> bytes:
        owner = await whose.owner_of(self._services.pool, _decoder.decode(await _body(request)))
        reply = WhoseReply(here=owner is not None, account_id=None if owner is None else owner.account_id)
        return msgspec.json.encode(reply)


class OwnFigures(_Internal):
    """`GET /internal/cell`."""

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer the figures of this cell."""
        await self._answer(request, response, self._figures)

    async def _figures(self, _: falcon.asgi.Request) -> bytes:
        return msgspec.json.encode(await overview.own_figures(self._services.pool))


class VouchForOperator(_Internal):
    """`POST /internal/operator`: the front passes the operator's cookie and CSRF token on."""

    async def on_post(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer the statement for the other cell."""
        await self._answer(request, response, self._statement)

    async def _statement(self, request: falcon.asgi.Request) -> bytes:
        settings = self._services.settings
        errand = _errands.decode(await _body(request))
        person = await self._services.sessions.person(auth.session_secret(request), auth.device(request))
        if person is None:
            raise auth.sign_in_required()
        auth.check_operator(settings, person)
        if errand.method != "GET":
            auth.check_csrf(person, request.get_header(auth.CSRF_HEADER))
        return visiting_operator.vouch(settings.pepper, person, errand, clock.machine_now()).encode()


async def _body(request: falcon.asgi.Request) -> bytes:
    """Return the body, cut off where it becomes too long to be a question."""
    connection, read = connection_of(request.scope), bytearray()
    while len(read) < MAX_BODY_BYTES and (piece := await connection.more()):
        read += piece
    return bytes(read)
