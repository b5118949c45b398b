"""The rules that hold in every run, whatever fails: watched at each step where they can be told, else checked at the
end.

Committed rows are read over a session of their own, which takes no part in the run.
"""

from collections import Counter
from typing import Final
from uuid import UUID

from engine.base import ids
from engine.store.queries import Queries, Query
from loadtests.simulation.backend import messages
from loadtests.simulation.clients import ClientRequest
from loadtests.simulation.database import SimulatedSession
from loadtests.simulation.mail_servers import Delivered
from loadtests.simulation.postgres import EVENT_TYPES
from loadtests.simulation.process import Process
from loadtests.simulation.service import Surroundings
from loadtests.simulation.supervisor import SimulatedSupervisor

_SQL = Queries.beside(__file__, "invariants.sql")
_LEFT = _SQL.command("left_over")
_MEMBERS = _SQL.command("members")
_DELIVERED = _SQL.command("delivered_addresses")
_MESSAGES = _SQL.command("stored_messages")
_RECIPIENTS = _SQL.command("stored_recipients")
_LOG_ENDS = _SQL.command("log_ends")
_WAYBILLS = _SQL.command("waybill_events")
_EVENTS = _SQL.command("posted_events")
_QUOTA = _SQL.command("used_quota")
_DAYS = _SQL.command("counted_days")
_LOST: Final = ("bounced", "failed", "rejected", "suppressed")
_FINAL: Final = ("delivered", *_LOST)
_DONE: Final = b"done"


class Watch:
    """The invariants of one run."""

    def __init__(self, around: Surroundings, supervisor: SimulatedSupervisor) -> None:
        self._around = around
        self._world = around.world
        self._supervisor = supervisor
        self._members: dict[Process, set[UUID]] = {}
        around.database.observers.append(self._statement)
        around.mail.before_taking = self._takes

    def left(self) -> str:
        """Return what is not final yet, empty if everything is."""
        return ", ".join(f"{count} {kind}" for kind, count in self._rows(_LEFT))

    # -- while it runs ---------------------------------------------------------------------------

    def _statement(self, session: SimulatedSession, label: str, _unit: bytes, reply: bytes) -> None:
        """A process that is no member of the shards settles nothing."""
        if session.process is None or not session.process.name.startswith("mta"):
            return
        role = self._supervisor.mta_of(session.process)
        known = self._members.setdefault(session.process, set())
        if role is not None:
            known.add(role.ownership.member_id)
        if label != "settle" or not any(kind == b"D" and _DONE in body for kind, body in messages(reply)):
            return
        members = {member for (member,) in self._rows(_MEMBERS)}
        if not members.intersection(map(str, known)):
            self._world.violate(f"{session.process.name} settled after it was fenced")

    def _takes(self, label: str, address: str, process: Process) -> str:
        """Return the sender's membership. A second copy goes out only after an unknown outcome: the first one's 250 was
        lost, or its process died or was fenced.
        """
        role = self._supervisor.mta_of(process)
        member = "" if role is None else str(role.ownership.member_id)
        before = self._around.mail.delivered.get((label, address), [])
        if not before:
            return member
        excuses = [self._excuse(one) for one in before]
        self._world.note("second", f"{label} to {address}: {', '.join(excuses)}")
        if not all(excuses):
            self._world.violate(f"{label} went to {address} again, though its outcome was known")
        if [address] in self._rows(_DELIVERED) and self._is_member(member):
            self._world.violate(f"{label} went to {address} again, though its delivery was on record")
        return member

    def _excuse(self, one: Delivered) -> str:
        if not one.heard:
            return "reply lost"
        if not one.process.alive:
            return "process killed"
        return "" if self._is_member(one.member) else "process fenced"

    def _is_member(self, member: str) -> bool:
        return [member] in self._rows(_MEMBERS)

    # -- at the end ------------------------------------------------------------------------------

    def check(self, requests: list[ClientRequest]) -> None:
        """Check what is stored against what clients, mail servers and receivers know."""
        self._check_accepted(requests)
        self._check_recipients()
        self._check_logs()
        self._check_counts()
        self._check_posts()
        for one in self._supervisor.failures:
            self._world.violate(one)

    def _check_accepted(self, requests: list[ClientRequest]) -> None:
        stored: dict[str, list[str]] = {}
        for label, message in self._rows(_MESSAGES):
            stored.setdefault(str(label), []).append(str(message))
        for one in requests:
            found = stored.get(one.label, [])
            if one.answer is not None and str(one.answer) not in found:
                self._world.violate(f"{one.label} was answered with 202 and is not stored")
            if one.key is not None and len(found) > 1:
                self._world.violate(f"{one.label} is stored {len(found)} times under one key")
            if one.key is None and len(found) > 1:
                self._world.violate(f"{one.label} is stored {len(found)} times for one request")

    def _check_recipients(self) -> None:
        refused = {address for _, address in self._around.mail.refused}
        rows = self._rows(_RECIPIENTS)
        for label, address, status, whole in rows:
            taken = self._around.mail.delivered.get((str(label), str(address)), [])
            if status not in _FINAL or whole not in _FINAL:
                self._world.violate(f"{label} to {address} is {status} ({whole}) at the end")
            if status == "delivered" and not taken:
                self._world.violate(f"{label} to {address} is delivered, and no server has it")
            if status in _LOST and address not in refused:
                self._world.violate(f"{label} to {address} is {status}, and no server refused it")
        stored = {(str(label), str(address)) for label, address, _, _ in rows}
        for label, address in self._around.mail.delivered.keys() - stored:
            self._world.violate(f"{label} was delivered to {address} and is not stored")

    def _check_logs(self) -> None:
        rows = self._rows(_LOG_ENDS)
        for account, tip, count, last, distinct in rows:
            if not tip == count == last == distinct:
                self._world.violate(f"the log of {account} has {count} events up to {last}, its head stands at {tip}")
        kinds: dict[str, Counter[str]] = {}
        for label, kind in self._rows(_WAYBILLS):
            kinds.setdefault(str(label), Counter())[str(kind)] += 1
        recipients = Counter(str(row[0]) for row in self._rows(_RECIPIENTS))
        for label, found in kinds.items():
            ended = sum(found[kind] for kind in ("delivered", "bounced", "failed"))
            if found["accepted"] != 1:
                self._world.violate(f"{label} has {found['accepted']} accepted events")
            if ended != recipients[label]:
                self._world.violate(f"{label} has {recipients[label]} recipients and {ended} final events")

    def _check_counts(self) -> None:
        rows = self._rows(_QUOTA)
        for account, today, month, scheduled, accepted, waiting in rows:
            if not today == month == accepted:
                self._world.violate(f"{account} used {today} of the day, {month} of the month for {accepted} messages")
            if scheduled != waiting:
                self._world.violate(f"{account} counts {scheduled} scheduled messages and has {waiting}")
        for account, delivered, bounced, counted, counted_bounced in self._rows(_DAYS):
            if (delivered, bounced) != (counted, counted_bounced):
                self._world.violate(f"{account} counts {counted} and {counted_bounced} for {delivered} and {bounced}")

    def _check_posts(self) -> None:
        for event, kind in self._rows(_EVENTS):
            if kind not in EVENT_TYPES:
                continue
            if ids.format_id(ids.Kind.EVENT, UUID(str(event))) not in self._around.receivers.taken:
                self._world.violate(f"the event {kind} {event} reached no receiver")

    def _rows(self, query: Query) -> list[list[str | None]]:
        return self._around.database.monitor.rows(query.sql)
