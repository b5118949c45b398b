"""Read and write sessions."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.store.queries import Queries

_SQL = Queries.beside(__file__)


class SessionRow(Struct, frozen=True):
    """A live session with its person and account."""

    id: UUID
    user_id: UUID
    account_id: UUID
    method: str
    created_at: datetime
    used_at: datetime
    role: str
    email: str
    name: str
    display_name: str | None
    timezone: str | None
    email_verified: bool
    has_totp: bool
    operator_confirmed: bool
    account_name: str
    plan: str
    agreed_caps: str | None
    account_status: str
    is_outdated: bool  # its digest is under the previous pepper

    @property
    def shown_name(self) -> str:
        """Return the name that others see."""
        return self.display_name or self.name or self.email


class SessionListRow(Struct, frozen=True):
    """A session for the list of its person."""

    id: UUID
    account_id: UUID
    account_name: str
    method: str
    address: str
    agent: str
    created_at: datetime
    used_at: datetime
    expires_at: datetime


FIND = _SQL.rows("find_session", SessionRow)
LIVING = _SQL.command("living_sessions")
LIST = _SQL.rows("list_sessions", SessionListRow)
INSERT = _SQL.command("insert_session")
TOUCH = _SQL.command("touch_session")
REDIGEST = _SQL.command("redigest_session")
ROTATE = _SQL.command("rotate_session")
MOVE = _SQL.command("move_session")
PERSON_OF = _SQL.command("person_of_session")
END = _SQL.command("end_session")
END_ONE = _SQL.command("end_one_session")
END_OTHERS = _SQL.command("end_other_sessions")
FORGET = _SQL.command("forget_sessions")
PLACES = _SQL.command("places_of")
REMEMBER = _SQL.command("remember_place")
