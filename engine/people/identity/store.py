"""Read and write linked identities and pending sign-in steps."""

from datetime import datetime
from uuid import UUID

from engine.people.identity.types import LIFETIME, IdentityRow, PendingSignIn, SignInStep, WaysIn
from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__)

FIND = _SQL.rows("find_identity", IdentityRow)
LIST = _SQL.rows("list_identities", IdentityRow)
INSERT = _SQL.command("insert_identity")
TOUCH = _SQL.command("touch_identity")
DELETE = _SQL.command("delete_identity")
_INSERT_STEP = _SQL.command("insert_step")
_TAKE = _SQL.rows("take_step", PendingSignIn)
_TRY = _SQL.rows("try_step", PendingSignIn)
FORGET_STEPS_OF = _SQL.command("forget_steps_of")
NAME_PERSON = _SQL.command("name_person")
WAYS_IN = _SQL.rows("ways_in", WaysIn)


async def begin(source: Source, kind: SignInStep, step: PendingSignIn, at: datetime) -> datetime:
    """Store a step for the lifetime of its kind from `at` on; return its end."""
    until = at + LIFETIME[kind]
    await _INSERT_STEP.execute(
        source, step.id, kind.value, step.browser, step.user_id, step.issuer, step.subject, step.return_to,
        step.app_redirect, step.challenge, until, at,
    )  # fmt: skip
    return until


async def take(
    source: Source, kind: SignInStep, step: UUID, browser: bytes | None, at: datetime
) -> PendingSignIn | None:
    """Consume the step; return None if it is unknown, used, expired or of another browser.

    Only one of concurrent requests gets it.
    """
    return await _TAKE.first(source, step, kind.value, at, browser)


async def try_on(
    source: Source, kind: SignInStep, step: UUID, browser: bytes | None, at: datetime, *, max_tries: int
) -> PendingSignIn | None:
    """Count a try on the step without consuming it; return None like `take`, or after `max_tries` tries."""
    return await _TRY.first(source, step, kind.value, at, browser, max_tries)
