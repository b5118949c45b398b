"""Build the page that shows the state of an unsubscribe link, with the choices that are left. Pure."""

from typing import Final

from msgspec import Struct

from api.pages.page import PageForm, PublicPage
from engine.base.localized_texts import localized
from engine.sending.unsubscribes import rules
from engine.sending.unsubscribes.types import LinkChoice, LinkState

CHOICE = "choice"  # the query parameter that tells which button was pressed


class UnsubscribeTexts(Struct, frozen=True, kw_only=True):
    """The texts of one language."""

    ask: str  # titles
    out: str
    out_of_topic: str
    back: str
    asks: str  # paragraphs
    is_out: str
    is_out_of_topic: str
    is_back: str
    gone: str
    all_button: str
    topic_button: str
    undo_note: str
    undo_button: str
    hint: str


TEXTS: Final = localized(__file__, "unsubscribe_texts.toml", UnsubscribeTexts)


def page_of(state: LinkState | None, language: str, done: LinkChoice | None = None) -> PublicPage:
    """Return the page of a link; `state` is None if it isn't stored any more, `done` the choice that was applied."""
    texts = TEXTS[language]
    if state is None:
        return PublicPage(language=language, title=texts.out, paragraphs=(texts.gone,), hint=texts.hint)
    title, paragraph = _words(texts, state, done)
    filled = {"sender": state.sender, "address": masked(state.address), "topic": state.topic or ""}
    return PublicPage(
        language=language,
        title=title.format(**filled),
        sender=state.sender,
        paragraphs=(paragraph.format(**filled),),
        forms=tuple(_forms(texts, state)),
        hint=texts.hint,
    )


def masked(address: str) -> str:
    """Return an address that its owner recognises and that tells others little: a forwarded message has the link."""
    local, _, domain = address.rpartition("@")
    return f"{local[:1]}•••@{domain}"


def _words(texts: UnsubscribeTexts, state: LinkState, done: LinkChoice | None) -> tuple[str, str]:
    if state.reason is not None:
        return texts.out, texts.is_out
    if state.out_of_topic and state.topic is not None:
        return texts.out_of_topic, texts.is_out_of_topic
    if done is LinkChoice.UNDO:
        return texts.back, texts.is_back
    return texts.ask, texts.asks


def _forms(texts: UnsubscribeTexts, state: LinkState) -> list[PageForm]:
    forms = []
    if state.reason is None:
        forms.append(PageForm(texts.all_button))
        if state.topic is not None and not state.out_of_topic:
            button = texts.topic_button.format(topic=state.topic)
            forms.append(PageForm(button, f"{CHOICE}={LinkChoice.TOPIC.value}", secondary=True))
    if rules.can_undo(state):
        query = f"{CHOICE}={LinkChoice.UNDO.value}"
        forms.append(PageForm(texts.undo_button, query, note=texts.undo_note, secondary=True))
    return forms
