"""Read and write verifications, the limits of their destinations, and the branding settings."""

from engine.codes.verifications.types import (
    ClaimedAttempt,
    FinishedRow,
    LinkedRow,
    LogoRow,
    NewVerification,
    PreludeRow,
    ResendRow,
    SettingsRow,
    StartFacts,
    VerificationRow,
)
from engine.store.queries import Queries
from engine.store.row_sets import Column, RowSet

VERIFICATION = RowSet(
    "verification",
    NewVerification,
    Column("id"),
    Column("account_id"),
    Column("destination"),
    Column("code"),
    Column("attempts_left", "smallint"),
    Column("code_length", "smallint"),
    Column("message_id"),
    Column("sender"),
    Column("stream"),
    Column("tags", "jsonb"),
    Column("metadata", "jsonb"),
    Column("locale"),
    Column("has_link"),
    Column("idempotency_key"),
    Column("created_at"),
    Column("expires_at"),
)

_SQL = Queries.beside(__file__)
READ = _SQL.rows("read_verification", VerificationRow)
READ_FOR_START = _SQL.rows("read_for_start", PreludeRow)
READ_FOR_RESEND = _SQL.rows("read_for_resend", ResendRow)
REDIGEST_DESTINATION = _SQL.command("redigest_destination")
START_FACTS = _SQL.rows("start_facts", StartFacts)
WRITE_FIRST_CODE = _SQL.wide("write_first_code", VERIFICATION)
LOCK_FOR_RESEND = _SQL.command("lock_for_resend")
WRITE_NEXT_CODE = _SQL.wide("write_next_code")
CLAIM_ATTEMPT = _SQL.rows("claim_attempt", ClaimedAttempt)
FINISH = _SQL.command("finish")
NOTE_APPROVED = _SQL.command("note_approved")
NOTE_EXHAUSTED = _SQL.command("note_exhausted")
READ_LINKED = _SQL.rows("read_linked", LinkedRow)
APPROVE_BY_LINK = _SQL.command("approve_by_link")
DUE = _SQL.rows("due_verifications", FinishedRow)
MARK_ANNOUNCED = _SQL.rows("mark_announced", FinishedRow)
PURGE = _SQL.command("purge_verifications")
FORGET_DESTINATIONS = _SQL.command("forget_destinations")
READ_SETTINGS = _SQL.rows("read_settings", SettingsRow)
SAVE_SETTINGS = _SQL.command("save_settings")
SAVE_LOGO = _SQL.command("save_logo")
READ_LOGO = _SQL.rows("read_logo", LogoRow)
