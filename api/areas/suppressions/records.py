"""Translate suppressions from their rows."""

from api.areas.suppressions.schemas import Suppression
from engine.areas.suppressions.types import Reason, SuppressionRow
from engine.base import clock, ids


def suppression_of(row: SuppressionRow) -> Suppression:
    """Return a suppression as replies show it."""
    message = None if row.message_id is None else ids.format_id(ids.Kind.MESSAGE, row.message_id)
    return Suppression(row.address, Reason(row.reason), row.detail, message, clock.iso(row.created_at))
