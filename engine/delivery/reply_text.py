"""Reduce the text of an SMTP reply to plain words, and find phrases in it. Pure; used by `reply_rules.py`.

`plain` returns lower-case words without accents. Addresses, host names, IP addresses and links become placeholders,
because others chose them: `<spam@b.test> unknown` does not mention spam. A `Phrase` is a sequence of whole words;
`provider_replies.toml` lists all phrases and explains how to write them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from unicodedata import combining, normalize

__all__ = ["Phrase", "index", "plain"]

MAX_TEXT = 1_000  # characters; a session keeps no more of a reply
MAX_GAP = 6  # words that "…" may stand for


# --- from a reply to its words -------------------------------------------------------------------

_QUOTED = re.compile(r"(?:[=%][0-9a-f]{2})+", re.ASCII)  # left over from quoted-printable and URL encoding
_LINK = re.compile(r"\b(?:https?://|www\.)[^\s<>()\[\]\"']+")
_LINK_REASON = re.compile(r"[?&;]p=([a-z]+)")  # Google's links name the reason: support.google.com/a/answer/3726730
_ADDRESS = re.compile(r"<[^\s<>]*>|(?:\"[^\"\s]{0,64}\"|[^\s<>()\[\]:;,\"'=]{1,64})@[^\s<>()\[\]:;,\"']*")
_IP = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}:[0-9a-f]{0,4}:[0-9a-f:.]*", re.ASCII)
_CODE = re.compile(r"\b[245]\.\d{1,3}\.\d{1,3}\b|\b[45]\d\d(?=[ -]+[245]\.\d)", re.ASCII)
# A name with one dot is a host only below a usual top-level domain: in `rejected.see` a space is missing.
_HOST = re.compile(
    r"\b(?:[a-z0-9_-]{1,63}\.){2,8}[a-z][a-z0-9-]*\b"
    r"|\b[a-z0-9_-]{1,63}\.(?:com|net|org|info|biz|edu|gov|test|example|invalid|local|lan|eu|de|fr|uk|ru|pl|nl|cz|jp)\b",
    re.ASCII,
)
_COMPONENT = re.compile(r"\b(resolver|storedrv|routing)\.(?=[a-z])")  # of Exchange: RESOLVER.ADR.RecipientNotFound
_APOSTROPHE = re.compile("['’`´]")
_IDEOGRAPH = re.compile("([\u3040-\u30ff\u4e00-\u9fff])")
_NO_WORD = re.compile(r"[^\w@¿]+|_+")


def plain(text: str, block_lists: tuple[str, ...] = ()) -> str:
    """Return the words of `text`, each followed by one space, with one space before the first.

    An address becomes `@`, an IP address `@ip`, a host or link `@host`, one below a domain of `block_lists`
    (".spamhaus.org") `@dnsbl`; the reason that a link of Google's names stays. Codes disappear.
    """
    text = text[:MAX_TEXT].lower()
    if "=" in text or "%" in text:
        text = _QUOTED.sub(_unquoted, text)
    if not text.isascii():
        text = _folded(text)
    if "/" in text or "www." in text:
        text = _LINK.sub(lambda link: _reason(link[0], block_lists), text)
    if "@" in text or "<" in text:
        text = _ADDRESS.sub(" @ ", text)
    if "." in text or ":" in text:
        text = _COMPONENT.sub(r"\1 ", _CODE.sub(" ", _IP.sub(" @ip ", text)))
        text = _HOST.sub(lambda host: _host(host[0], block_lists), text)
    words = _NO_WORD.sub(" ", _APOSTROPHE.sub("", text)).strip()
    return f" {words} "


def _unquoted(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("=", "").replace("%", "")).decode("utf-8", "replace").lower()


def _folded(text: str) -> str:
    """Return `text` without accents, each ideograph as a word, and "¿" for every octet that was not UTF-8."""
    letters = (letter for letter in normalize("NFKD", text.replace("¿", " ")) if not combining(letter))
    return _IDEOGRAPH.sub(r" \1 ", "".join(letters).replace("\ufffd", "¿"))


def _reason(link: str, block_lists: tuple[str, ...]) -> str:
    reason = _LINK_REASON.search(link)
    if reason is not None:
        return f" {reason[1]} "
    return _host(link.partition("://")[2].partition("/")[0] or link.partition("/")[0], block_lists)


def _host(name: str, block_lists: tuple[str, ...]) -> str:
    return " @dnsbl " if f".{name}".endswith(block_lists or ("\0",)) else " @host "


# --- phrases -------------------------------------------------------------------------------------

_PIECE = re.compile(r"\)\?|[()|…]|\{\w+\}|[^\s()|…{}]+")


class Phrase:
    """A phrase for texts that `plain` returned; `openings` are the words that it can begin with.

    Compiled on first use: compiling all phrases takes 70 ms, which every process would spend at its start.
    """

    __slots__ = ("_find", "_source", "openings")

    def __init__(self, pattern: str, sets: Mapping[str, Sequence[str]]) -> None:
        pieces = _PIECE.findall(pattern)
        self.openings = frozenset(_openings(pieces, sets))
        self._source = "(?<= )" + "".join(_expression(piece, sets) for piece in pieces)
        self._find: Callable[[str], re.Match[str] | None] | None = None

    def is_in(self, words: str) -> bool:
        """Return True if the phrase occurs in `words`."""
        if self._find is None:
            self._find = re.compile(self._source).search
        return self._find(words) is not None


def _openings(pieces: list[str], sets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the first words of the alternatives that the phrase begins with."""
    first = [pieces[0]]
    if pieces[0] == "(":
        end = next(at for at, piece in enumerate(pieces) if piece in {")", ")?"})
        if pieces[end] == ")?":
            raise ValueError(
                f"The phrase begins with the optional words {pieces[1:end]}. Begin it with a required word."
            )
        first = [piece for before, piece in pairwise(pieces[:end]) if before in {"(", "|"}]
    for piece in first:
        for word in sets[piece[1:-1]] if piece.startswith("{") else (piece,):
            yield plain(word).split()[0]


def _expression(piece: str, sets: Mapping[str, Sequence[str]]) -> str:
    if piece == "(":
        return "(?:"
    if piece == "…":
        return _gap(sets.get("elsewhere", ()))
    if piece in {")", ")?", "|"}:
        return piece
    if piece.startswith("{"):
        return _one_of(sets[piece[1:-1]])
    return _word(piece)


def _word(text: str) -> str:
    return re.escape(plain(text).strip()) + " "


def _one_of(words: Sequence[str]) -> str:
    """Return an expression for any of `words`, grouped by first letter: a tenth of the comparisons of a plain
    alternation.
    """
    by_letter: dict[str, list[str]] = {}
    for word in words:
        expression = _word(word)
        by_letter.setdefault(expression[0], []).append(expression[1:])
    return "(?:" + "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in by_letter.items()) + ")"


def _gap(elsewhere: Sequence[str]) -> str:
    """Return an expression for up to MAX_GAP words, none of them in `elsewhere`: such words begin another subject."""
    unless = f"(?!{_one_of(elsewhere)})" if elsewhere else ""
    return f"(?:{unless}[^ ]+ ){{0,{MAX_GAP}}}?"


def index(phrases: Sequence[Phrase]) -> dict[str, tuple[int, ...]]:
    """Return the places of the phrases by each word that they can begin with."""
    places: dict[str, list[int]] = {}
    for place, phrase in enumerate(phrases):
        for word in phrase.openings:
            places.setdefault(word, []).append(place)
    return {word: tuple(found) for word, found in places.items()}
