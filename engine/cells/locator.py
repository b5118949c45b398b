"""Find the cell of an account, a key or an address: what every front asks for each request or connection.

Placements come from the directory, keys from the cells themselves. Answers are kept in memory: an account's key never
belongs to another one later, and a changed placement is read from the directory within half a second. While the
directory is down, what is known continues to work. Everything that strangers can cause is bounded: the caches, the
questions in flight, and the unknown keys per second and network.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from uuid import UUID

import aiohttp
import msgspec
import structlog
from msgspec import Struct

from engine.base.secrets import Pepper
from engine.cells.ask import ASK_S, CellSilent, ask, credential
from engine.cells.claims import ClaimKind
from engine.cells.directory import Cell, Directory, Placement
from engine.cells.whose import PATH, Key
from engine.store.database_errors import DatabaseError
from engine.store.single_flight import SingleFlightCache

POLL_S: Final = 0.4  # so that a changed placement is known within half a second
CELLS_S: Final = 2.0
FOLLOW_S: Final = 2.0  # for a look at the directory; with POLL_S less than movers wait before a cell deletes accounts
KEPT_S: Final = 600.0  # for a key's account: after that a session that has moved to another account is asked for again
UNKNOWN_S: Final = 1.0
MAX_KEPT: Final = 200_000
MAX_CHANGES: Final = 1_000
MAX_ASKED: Final = 64  # questions that a cell gets at a time
MAX_UNKNOWN_PER_S: Final = 20  # from one network
HOLD_S: Final = 8.0  # that a request or a login waits while its account moves; a move pauses it for less
HOLD_POLL_S: Final = 0.1
MAX_HELD: Final = 2_000
DOWN_S: Final = 2.0  # a cell that did not answer gets no requests that any cell can answer for this long

_log = structlog.get_logger("cells")
_encoder = msgspec.json.Encoder()
_Found = TypeVar("_Found")


class Unlocated(Exception):  # noqa: N818 - named for the state
    """The cell can't be determined now: the directory, or a cell that may know, does not answer."""


class TooManyUnknown(Exception):  # noqa: N818 - named for the state
    """A network sends too many keys that no cell knows."""


class Location(Struct, frozen=True):
    """The cell that has something, and the account if it belongs to one; `moving`: wait for the end of its move."""

    cell: str
    account_id: UUID | None = None
    moving: bool = False


class WhoseReply(Struct, rename="camel"):
    """The reply of a cell: whether it has the key, and the account that it belongs to."""

    here: bool
    account_id: UUID | None = None


class _Answer(Struct, frozen=True):
    """The answer of the cells about a key; None: no cell has it."""

    location: Location | None
    until: float  # monotonic


class Locator:
    """The directory and the cells as one front knows them; `run` follows the directory until it is cancelled."""

    def __init__(self, directory_url: str, pepper: Pepper, http: aiohttp.ClientSession) -> None:
        self.cells: dict[str, Cell] = {}
        # Whether the last look at the directory succeeded. Else an account may have left its cell, whose refusals of
        # what it no longer has must not reach a client as permanent ones.
        self.current = False
        self.looked = asyncio.Event()  # once the first look ended
        self._url = directory_url
        self._token = credential(pepper)
        self._http = http
        self._directory: Directory | None = None
        self._version = 0
        self._placements: dict[UUID, Placement] = {}
        self._answers: SingleFlightCache[Key, _Answer] = SingleFlightCache(self._ask, MAX_KEPT, time.monotonic)
        # Of each cell its own, so that one that hangs does not delay questions to the others.
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_ASKED))
        self._held = 0
        self._misses: dict[str, tuple[float, int]] = {}
        self._down_until: dict[str, float] = {}

    # -- the directory ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the directory; log when it goes away and comes back."""
        cells_at = 0.0
        while True:
            try:
                async with asyncio.timeout(FOLLOW_S):
                    await self._follow(with_cells=cells_at <= time.monotonic())
                if cells_at <= time.monotonic():
                    cells_at = time.monotonic() + CELLS_S
                if not self.current:
                    _log.info("directory read", cells=sorted(self.cells))
                self.current = True
            # One that no longer follows would lead accounts to cells that they have left.
            except Exception as error:  # noqa: BLE001 - of a loop that must go on
                if self.current or not self.cells:
                    _log.warning("directory not read", error=repr(error))
                self.current = False
            self.looked.set()
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """End the questions and close the connections to the directory."""
        await self._answers.close()
        if self._directory is not None:
            await self._directory.close()

    async def _follow(self, *, with_cells: bool) -> None:
        if self._directory is None:
            opened = await Directory.open(self._url, name="front")
            self._version = await opened.version()
            self._directory = opened
        if with_cells or not self.current:
            self.cells = {one.name: one for one in await self._directory.cells()}
        for change in await self._directory.changes(self._version, MAX_CHANGES):
            self._version = max(self._version, change.version)
            self._placements.pop(change.account_id, None)

    async def placement(self, account: UUID) -> Placement | None:
        """Return the placement of an account. Raises Unlocated if it is not known and the directory is down."""
        known = self._placements.get(account)
        if known is not None:
            return known
        version = self._version
        found = await self._asked_directory(lambda directory: directory.cell_of(account))
        if found is not None and version == self._version:  # else its change may have been read meanwhile
            if len(self._placements) >= MAX_KEPT:
                del self._placements[next(iter(self._placements))]
            self._placements[account] = found
        return found

    async def after_move(self, location: Location) -> Location:
        """Return the location once its account no longer moves. Raises Unlocated after a while, or if many wait."""
        account = location.account_id
        if not location.moving or account is None:
            return location
        if self._held >= MAX_HELD:
            raise Unlocated("too many requests wait for the end of a move")
        self._held += 1
        try:
            async with asyncio.timeout(HOLD_S):
                while True:
                    await asyncio.sleep(HOLD_POLL_S)
                    found = await self._placed(location.cell, account)
                    if not found.moving:
                        return found
        except TimeoutError:
            raise Unlocated("the account is being moved") from None
        finally:
            self._held -= 1

    async def of_address(self, email: str) -> Location | None:
        """Return the cell that has claimed the address of a person."""
        claim = await self._asked_directory(lambda directory: directory.claimed(ClaimKind.EMAIL.value, email))
        return None if claim is None else Location(claim.cell)

    async def of_domain(self, name: str) -> Location | None:
        """Return the cell that has claimed a domain, with its account."""
        claim = await self._asked_directory(lambda directory: directory.claimed(ClaimKind.DOMAIN.value, name))
        return None if claim is None else await self._placed(claim.cell, claim.holder)

    async def _asked_directory(self, question: Callable[[Directory], Awaitable[_Found]]) -> _Found:
        if self._directory is None:
            raise Unlocated("the directory has not been read yet")
        try:
            async with asyncio.timeout(ASK_S):
                return await question(self._directory)
        except (DatabaseError, OSError) as error:
            raise Unlocated("the directory does not answer") from error

    # -- the cells --------------------------------------------------------------------------------

    def is_up(self, cell: str) -> bool:
        """Return True for a known cell that has not failed to answer just now."""
        return cell in self.cells and self._down_until.get(cell, 0.0) < time.monotonic()

    def any_cell(self) -> str | None:
        """Return a cell that answers, for requests that each cell answers in the same way."""
        up = [name for name in self.cells if self.is_up(name)]
        return random.choice(up or list(self.cells) or [""]) or None

    def for_new_account(self) -> str | None:
        """Return an open cell that answers, chosen by the weights; None if no cell is open."""
        open_cells = [one for one in self.cells.values() if one.state == "open" and one.weight > 0]
        up = [one for one in open_cells if self.is_up(one.name)] or open_cells
        return random.choices(up, [one.weight for one in up])[0].name if up else None

    def failed(self, cell: str) -> None:
        """Note that a cell did not answer."""
        self._down_until[cell] = time.monotonic() + DOWN_S

    async def find(self, key: Key, network: str) -> Location | None:
        """Return the cell of a key, asking all cells if it is not known; None if no cell has it.

        Raises Unlocated if no cell has it but one did not answer, TooManyUnknown for too many unknown ones of a client
        `network`.
        """
        if self._answers.peek(key) is None:
            self._check_misses(network)
        known = (await self._answers.get(key)).location
        if known is None:
            self._count_miss(network)
            return None
        return known if known.account_id is None else await self._placed(known.cell, known.account_id)

    async def _placed(self, cell: str, account: UUID) -> Location:
        """Return where the account is by the directory; where it was found if the directory does not have it."""
        placement = await self.placement(account)
        if placement is None or placement.cell is None:
            return Location(cell, account)
        return Location(placement.cell, account, placement.moving_to is not None)

    async def _ask(self, key: Key) -> _Answer:
        """Ask all cells at once, until one has the key."""
        asked = [asyncio.create_task(self._whose(cell, key)) for cell in self.cells.values()]
        silent = not asked
        try:
            for answering in asyncio.as_completed(asked):
                try:
                    location = await answering
                except CellSilent:
                    silent = True
                else:
                    if location is not None:
                        return _Answer(location, time.monotonic() + KEPT_S)
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if silent:
            raise Unlocated("a cell does not answer")
        return _Answer(None, time.monotonic() + UNKNOWN_S)

    async def _whose(self, cell: Cell, key: Key) -> Location | None:
        """Return the location of a key if this cell has it. Raises CellSilent."""
        try:
            async with asyncio.timeout(ASK_S), self._slots[cell.name]:
                reply = await ask(self._http, cell, PATH, self._token, _encoder.encode(key))
            found = reply.decoded(WhoseReply)
        except (CellSilent, TimeoutError) as error:
            _log.warning("cell did not answer a question", cell=cell.name, error=repr(error))
            self.failed(cell.name)
            raise CellSilent from error
        return Location(cell.name, found.account_id) if found.here else None

    def _check_misses(self, network: str) -> None:
        second, count = self._misses.get(network, (0.0, 0))
        if count >= MAX_UNKNOWN_PER_S and second + 1 > time.monotonic():
            raise TooManyUnknown

    def _count_miss(self, network: str) -> None:
        now = time.monotonic()
        second, count = self._misses.get(network, (0.0, 0))
        if len(self._misses) > MAX_KEPT:
            self._misses.clear()
        self._misses[network] = (now, 1) if second + 1 <= now else (second, count + 1)
