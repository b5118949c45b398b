"""Decide what the use of an unsubscribe link changes, and what its page shows afterwards. Pure."""

from msgspec import structs

from engine.sending.unsubscribes.types import LinkChoice, LinkState

_REASON = "unsubscribe"


def changes(state: LinkState, choice: LinkChoice) -> bool:
    """Return True if the choice would change anything; a bounce or a complaint already blocks all mail."""
    if choice is LinkChoice.ALL:
        return state.reason is None
    if choice is LinkChoice.TOPIC:
        return state.list_id is not None and not state.out_of_topic
    return _lifts_suppression(state) or state.lifts_topic


def after(state: LinkState, choice: LinkChoice) -> LinkState:
    """Return the state after the choice."""
    if not changes(state, choice):
        return state
    if choice is LinkChoice.ALL:
        return structs.replace(state, reason=_REASON, lifts_all=True)
    if choice is LinkChoice.TOPIC:
        return structs.replace(state, out_of_topic=True, lifts_topic=True)
    return structs.replace(
        state,
        reason=None if _lifts_suppression(state) else state.reason,
        lifts_all=False,
        out_of_topic=state.out_of_topic and not state.lifts_topic,
        lifts_topic=False,
    )


def can_undo(state: LinkState) -> bool:
    """Return True if an opt-out by this link is in force and not covered by a stronger reason."""
    return changes(state, LinkChoice.UNDO)


def _lifts_suppression(state: LinkState) -> bool:
    return state.lifts_all and state.reason == _REASON
