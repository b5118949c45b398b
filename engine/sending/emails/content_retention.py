"""How long the content of a message is kept, as a send or a stream says. Pure."""

from engine.base.errors import invalid


def content_hours_of(*, retain: bool | None, until: int | None, default: int | None) -> int | None:
    """Return the hours from the last outcome of a message to the deletion of its content; None to keep it as planned.

    `retain` and `until` are the fields `retainContent` and `contentUntil`, `default` what holds without them. Raises
    the 400 for two that contradict one another.
    """
    if until is not None:
        if retain:
            raise invalid(
                "contentUntil",
                "`contentUntil` can't be combined with a `retainContent` of true. Remove one of the two.",
            )
        return until
    if retain is None:
        return default
    return None if retain else 0


def retains(hours: int | None) -> bool:
    """Return `retainContent` as it is shown: False if the content is deleted after the last outcome."""
    return hours is None


def until_shown(hours: int | None) -> int | None:
    """Return `contentUntil` as it is shown: None for content that is kept, or deleted with the last outcome."""
    return hours or None
