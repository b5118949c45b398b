"""Read and write second factors, recovery codes and failed tries."""

from datetime import datetime

from msgspec import Struct

from engine.people.second_factor.rules import Tries
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)


class FactorRow(Struct, frozen=True):
    """A person's second factor; `totp_enabled_at` is None until enrolment is complete."""

    email: str
    totp_sealed: bytes | None
    totp_enabled_at: datetime | None
    totp_last_step: int | None


class FactorStateRow(Struct, frozen=True):
    """The state of a second factor for its person."""

    totp_enabled_at: datetime | None
    recovery_codes: int


class RemainingCodes(Struct, frozen=True):
    """Count the recovery codes left after one was used."""

    remaining: int


LOCK = _SQL.rows("lock_factor", FactorRow)
STATE = _SQL.rows("factor_state", FactorStateRow)
BEGIN = _SQL.command("begin_enrolment")
ENABLE = _SQL.command("enable_factor")
DISABLE = _SQL.command("disable_factor")
USE_STEP = _SQL.command("use_step")
INSERT_CODES = _SQL.command("insert_recovery_codes")
DROP_CODES = _SQL.command("drop_recovery_codes")
USE_CODE = _SQL.rows("use_recovery_code", RemainingCodes)
TRIES = _SQL.rows("tries_from", Tries)
COUNT_FAILURE = _SQL.command("count_failure")
FORGET_FAILURES = _SQL.command("forget_failures")
