"""The rules of `provider_replies.toml`, compiled once: meanings of the words of a reply. Used by `outcome.py`."""

import tomllib
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from engine.delivery.reply_codes import Category, ReplyMeaning, Scope
from engine.delivery.reply_text import Phrase, index, plain

__all__ = [
    "HINTS", "RECIPIENTS", "REFUSALS", "ReplyRules", "is_bare", "is_empty", "is_passing", "is_unexplained",
    "names_a_mailbox_only", "names_the_sender", "words_of",
]  # fmt: skip


class ReplyRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule of `provider_replies.toml`; the head of that file explains each field."""

    phrase: str
    category: Category = msgspec.field(name="class")
    scope: Scope
    example: str
    unlike: str
    source: str
    status: str | None = None


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    block_lists: tuple[str, ...]
    bare_texts: tuple[str, ...]
    silent: tuple[str, ...]
    passing: tuple[str, ...]
    about_us: tuple[str, ...]
    sets: dict[str, tuple[str, ...]]
    refusals: tuple[ReplyRule, ...]
    recipients: tuple[ReplyRule, ...]
    hints: tuple[ReplyRule, ...]


class _Compiled(NamedTuple):
    phrase: Phrase
    status: str | None
    finding: ReplyMeaning


class ReplyRules:
    """Rules of one kind in their order, indexed by first word, so that few of them are tried on a text."""

    __slots__ = ("_compiled", "_places", "table")

    def __init__(self, table: tuple[ReplyRule, ...], sets: dict[str, tuple[str, ...]]) -> None:
        self.table = table
        self._compiled = tuple(
            _Compiled(Phrase(rule.phrase, sets), rule.status, ReplyMeaning(rule.category, rule.scope)) for rule in table
        )
        self._places = index([rule.phrase for rule in self._compiled])

    def first(self, words: str, status: str | None) -> ReplyMeaning | None:
        """Return the meaning of the first rule that matches `words`; `status` is the reply's enhanced status."""
        places = self._places
        candidates = {place for word in set(words.split()) for place in places.get(word, ())}
        for place in sorted(candidates):
            rule = self._compiled[place]
            if (rule.status is None or (status is not None and status[2:] == rule.status)) and rule.phrase.is_in(words):
                return rule.finding
        return None

    def matches(self, place: int, words: str) -> bool:
        """Return True if the rule at `place`, taken alone, matches `words`."""
        return self._compiled[place].phrase.is_in(words)


_TABLE = msgspec.convert(tomllib.loads((Path(__file__).parent / "provider_replies.toml").read_text("utf-8")), _Table)
REFUSALS = ReplyRules(_TABLE.refusals, _TABLE.sets)
RECIPIENTS = ReplyRules(_TABLE.recipients, _TABLE.sets)
HINTS = ReplyRules(_TABLE.hints, _TABLE.sets)


class _Words:
    """A list of words and short phrases, any of which may occur in a text."""

    __slots__ = ("_phrase",)

    def __init__(self, words: tuple[str, ...]) -> None:
        self._phrase = Phrase("{words}", {"words": words})

    def any_in(self, words: str) -> bool:
        return self._phrase.is_in(words)


_PASSING = _Words(_TABLE.passing)
_ABOUT_US = _Words(_TABLE.about_us)
_SENDER = _Words(_TABLE.sets["sender"] + _TABLE.sets["our_host"])
_MAILBOX = _Words(_TABLE.sets["mailbox"])
_SILENT = frozenset(plain(word).strip() for word in _TABLE.silent)
_BARE = frozenset(f" {plain(text).strip()} " for text in _TABLE.bare_texts)


def words_of(text: str) -> str:
    """Return the words of a reply's text, ready for the rules."""
    return plain(text, _TABLE.block_lists)


def is_bare(words: str) -> bool:
    """Return True if the whole text, but for addresses and hosts, says that an address is not there."""
    return f" {_said(words)} " in _BARE


def is_empty(words: str) -> bool:
    """Return True if a reply has no text besides its code and the addresses and hosts that it names."""
    return not _said(words)


def _said(words: str) -> str:
    return " ".join(word for word in words.split() if word not in {"@", "@host"})


def is_unexplained(words: str) -> bool:
    """Return True if a reply has no word about its cause: neither about us nor about a state that passes."""
    return _is_silent(words) or not (_ABOUT_US.any_in(words) or is_passing(words))


def _is_silent(words: str) -> bool:
    return _SILENT.issuperset(words.split())


def is_passing(words: str) -> bool:
    """Return True if a reply describes a temporary state, such as a full mailbox, whatever its code."""
    return _PASSING.any_in(words)


def names_a_mailbox_only(words: str) -> bool:
    """Return True if a reply names a mailbox and has no word about us, our host or our message."""
    return _MAILBOX.any_in(words) and not _ABOUT_US.any_in(words) and not _is_silent(words)


def names_the_sender(words: str) -> bool:
    """Return True if a reply names the sender, its domain or our host."""
    return _SENDER.any_in(words)
