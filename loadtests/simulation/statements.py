"""Names of statements for the schedule: those of the `.sql` files, else the first words."""

import re
from typing import Final

from engine.store.queries import REGISTRY, SessionFunction
from loadtests.simulation.backend import messages

_OF_DRIVER: Final = ("WITH RECURSIVE typeinfo_tree", "SELECT current_setting('jit')")
_WORDS: Final = 48
_CALL: Final = re.compile(r"SELECT pg_temp\.(\w+)\(")


class Labels:
    """The names of the statements that sessions have prepared."""

    def __init__(self) -> None:
        self._names = {one.sql: one.name for one in REGISTRY if not isinstance(one, SessionFunction)}
        self._prepared: dict[tuple[str, bytes], str] = {}

    def of(self, session: str, unit: bytes) -> str:
        """Return the name of a request."""
        label = ""
        for kind, body in messages(unit):
            if kind == b"Q":
                return self._named(body[:-1].decode())
            if kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self._prepared[session, name] = self._named(text.decode())
                label = f"prepare {self._prepared[session, name]}"
            elif kind == b"B":
                _, name, _ = body.split(b"\0", 2)
                label = self._prepared.get((session, name), "?")
        return label or "close"

    def _named(self, sql: str) -> str:
        known = self._names.get(sql)
        if known is not None:
            return known
        called = _CALL.match(sql)
        return called[1] if called else " ".join(sql.split())[:_WORDS]


def about_schema(session: bytes, label: str, unit: bytes) -> bytes | None:
    """Return a key of a request whose reply depends on the schema alone: the description of a statement, and what the
    driver asks about types. None for all others.
    """
    if unit.startswith(b"P"):
        size = 1 + int.from_bytes(unit[1:5], "big")
        rest = unit[size:]
        if rest.startswith(b"D") and rest.endswith(b"H\0\0\0\x04"):
            return session + b"P" + unit[5:size].split(b"\0", 1)[1]
    if unit.startswith(b"B") and label.startswith(_OF_DRIVER):
        return session + b"B" + label.encode() + unit[5:].split(b"\0", 2)[2]
    return None


def is_writing(label: str) -> bool:
    """Return True for requests whose loss leaves open whether something was committed."""
    return label.startswith(("COMMIT", "INSERT", "UPDATE", "DELETE", "WITH")) or label in _WRITING


_WRITING: Final = {
    "accept", "settle", "heartbeat", "take_free", "claim", "record_posts", "postpone_rows", "bury_row", "fence_expired",
    "insert_accepted", "write_released",
}  # fmt: skip
