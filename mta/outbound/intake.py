"""Takes loaded rows into memory: each becomes a delivery in the active queue and is handed to routing by domain."""

from collections.abc import Awaitable, Iterable, Sequence

import structlog

from engine.base import clock
from engine.base.secrets import Unsealable
from engine.delivery.queue import Row
from engine.delivery.sealed_mail import UNREADABLE, MailSealer
from mta.outbound.active_queue import ActiveQueue
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.holds import OperatorHolds
from mta.outbound.route import RouteStage
from mta.outbound.row_moves import RowMoves
from mta.outbound.suppression_check import SuppressionCheck
from mta.outbound.tasks import DeliveryTasks
from shards.ownership import ShardOwnership

_log = structlog.get_logger("mta")


class RowIntake:
    """The end of the fetch stage: decides which rows to take, and hands them to the route stage.

    `simulator` is the domain whose deliveries are marked as simulated.
    """

    def __init__(
        self,
        *,
        simulator: str,
        sealer: MailSealer,
        active: ActiveQueue,
        ownership: ShardOwnership,
        row_moves: RowMoves,
        suppression: SuppressionCheck,
        holds: OperatorHolds,
        routing: RouteStage,
        tasks: DeliveryTasks,
    ) -> None:
        self._simulator = simulator
        self._sealer = sealer
        self._active = active
        self._ownership = ownership
        self._row_moves = row_moves
        self._suppression = suppression
        self._holds = holds
        self._routing = routing
        self._tasks = tasks

    async def take(self, loading: Awaitable[Sequence[Row]]) -> None:
        """Take the rows that this process owns and does not hold yet. Raises DatabaseUnavailable; then nothing was
        taken."""
        membership = self._ownership.member_id
        rows = await loading
        if self._ownership.member_id != membership:
            return  # fenced since: another owner may have delivered them, even if the shard has come back
        fresh = self._added(rows)
        if not fresh:
            return
        try:
            await self._suppression.mark([one for one in fresh if one.row.suspect or one.row.is_sealed])
            fresh = await self._holds.unheld(fresh)
        except BaseException:
            for delivery in fresh:
                self._active.drop(delivery)
            raise
        by_domain: dict[str, list[ActiveDelivery]] = {}
        for delivery in fresh:
            by_domain.setdefault(delivery.row.domain, []).append(delivery)
        for domain, group in by_domain.items():
            self._tasks.start(self._routing.route(domain, group))

    def _added(self, rows: Iterable[Row]) -> list[ActiveDelivery]:
        """Add to the active queue the rows that this process may take; return their deliveries."""
        now = clock.monotonic()
        fresh: list[ActiveDelivery] = []
        for row in rows:
            if self._may_take(row):
                delivery = self._delivery(row, now)
                self._active.add(delivery)
                fresh.append(delivery)
        return fresh

    def _delivery(self, row: Row, now: float) -> ActiveDelivery:
        simulated = row.domain == self._simulator
        if not (row.is_sealed or row.forgets):
            return ActiveDelivery(row, now, simulated=simulated)
        try:
            if row.forgets:
                return ActiveDelivery(self._sealer.opened(row), now, simulated=simulated)
            delivery = ActiveDelivery(row, now, simulated=simulated, pairs=self._sealer.open(row))
        except Unsealable as error:
            _log.error("sealed message not readable", message=str(row.message_id), error=str(error))
            delivery = ActiveDelivery(row, now, simulated=simulated)
            delivery.suppressed = {address: UNREADABLE for _, address in delivery.pairs}
        return delivery

    def _may_take(self, row: Row) -> bool:
        return not (
            self._active.known(row.key, row.attempts)
            or row.shard not in self._ownership.shards
            or self._active.closed
            or self._row_moves.refuses(row)
        )
