"""Parse the values of MIME fields: the word before the first semicolon, and the parameters (RFC 2045 5.1, RFC 2231).

Mail programs differ in how they read values that break the grammar, and in which of two equal names they use. A
parameter therefore has every reading that one of them gives it, the most usual first. Linear in the value, never
raises. `mime_tree` calls it for each part.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from engine.mail.address_list import without_comments
from engine.mail.charsets import CharsetFlaw, decode_text, in_charset
from engine.mail.encoded_words import decoded

MAX_VALUE: Final = 4_096  # octets read of one field; a name of 255 characters in RFC 2231 takes 2,300
MAX_PARAMETERS: Final = 64
_MAX_CACHED: Final = 80  # octets: most messages declare the same few types, encodings and dispositions

_folds = re.compile(rb"\r?\n(?=[ \t])").sub
_breaks = re.compile(r"[\r\n\t]+").sub
# No possessive groups: before Python 3.11.4 one that fails inside can end in the middle of a repetition.
_quoted = r'"(?:[^"\\]++|\\.)*"'
_closed = re.compile(rf'(?:{_quoted}|[^"]++)*', re.DOTALL).match  # up to a quote that is not closed
_segments = re.compile(rf'(?:{_quoted}|[^;"]++)*;', re.DOTALL).findall  # with the semicolon that ends each
_named = re.compile(r'(?<![^\s=;"(),<>])([^\s=;"(),<>]++)\s*+(?:\([^()]*+\)\s*+)*=\s*+', re.DOTALL).search
_quoted_string = re.compile(_quoted, re.DOTALL).match
_unescaped = re.compile(r"\\(.)", re.DOTALL).sub
# A parameter that follows a blank without a semicolon; any other `word=` may belong to an unquoted file name.
_next_parameter = re.compile(
    r"\s(?:boundary|charset|delsp|filename|format|name|report-type|start|type)(?:\*\d*\*?)?\s*=", re.IGNORECASE
).search
_last_comment = re.compile(r"(?:\A\([^()]*+\)\s*(?=\S))|(?:\s\((?:[^()]++|\([^()]*+\))*+\)\s*\Z)").sub
_word = re.compile(r"\s*+(?:[\"']\s*+)?([\w!#$&^.+-]++)\s*+(?:/\s*+([\w!#$&^.+-]++)\s*+)?", re.ASCII).match
_names_file = re.compile(r"(?:file)?name(?:\*\d{0,3}\*?)?").fullmatch
_segment = re.compile(r"(\d{1,3})(\*?)").fullmatch


class MimeParameter(NamedTuple):
    """A parameter: its lower-case name, and its readings, the most usual first."""

    name: str
    readings: tuple[str, ...]


class MimeField(NamedTuple):
    """A parsed field. `cut`: it exceeds MAX_VALUE or MAX_PARAMETERS, and its rest was not read."""

    major: str  # "text" of `text/plain`, "attachment", "base64"; in lower case, "" if there is none
    minor: str  # "plain"; "" if there is none
    parameters: tuple[MimeParameter, ...] = ()
    flaw: CharsetFlaw | None = None
    cut: bool = False
    named: bool = False  # it has a parameter for a file name, in any form
    extended: bool = False  # it has a parameter in a form of RFC 2231

    def value(self, name: str) -> str:
        """Return the usual reading of a parameter; "" without one."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter.readings[0]
        return next(iter(self._extended(name)), "")

    def readings(self, name: str) -> list[str]:
        """Return all readings of all parameters of this name, in any form, each once."""
        found = [reading for one in self.parameters if one.name == name for reading in one.readings]
        return list(dict.fromkeys([*found, *self._extended(name)]))

    def names(self, word: str) -> list[str]:
        """Return the file names in parameters `word`: in the form of RFC 2231, then the plain one, decoded."""
        found = self._extended(word)[:1]
        found += [decoded(one.readings[0]) for one in self.parameters if one.name == word]
        return list(dict.fromkeys(_one_line(name) for name in found if name))

    def spellings(self, word: str) -> Iterator[str]:
        """Yield every file name that some program could read in parameters `word`, perhaps several times."""
        for name in self.readings(word):
            once = decoded(name)
            for reading in dict.fromkeys((name, once, decoded(once))):
                yield _one_line(reading)
                if "%" in reading:
                    yield _one_line(unquote(reading))
                if any(map(str.isspace, reading)):  # some programs drop the blank of a fold
                    yield "".join(reading.split())

    def _extended(self, word: str) -> list[str]:
        """Decode the forms of RFC 2231: `word*`, or `word*0`, `word*1*` and so on joined.

        Of pieces with equal numbers some programs use the first and some the last, and at a missing number some stop.
        """
        if not self.extended:
            return []
        mark = f"{word}*"
        pieces: dict[int, list[tuple[str, bool]]] = {}
        found: list[str] = []
        for name, readings in self.parameters:
            if name == mark:
                found += (_joined([(reading, True)]) for reading in readings)
            elif name.startswith(mark) and (numbered := _segment(name[len(mark) :])) is not None:
                pieces.setdefault(int(numbered[1]), []).append((readings[0], bool(numbered[2])))
        if pieces:
            places = sorted(pieces)
            whole = next((at for at, place in enumerate(places) if at != place), len(places))
            if places[0] == 0:
                found.append(_joined([pieces[place][0] for place in places]))
                found.append(_joined([pieces[place][0] for place in places[:whole]]))
            found.append(_joined([pieces[place][-1] for place in places]))
        return list(dict.fromkeys(found))


def parse_field(value: bytes) -> MimeField:
    """Parse the value of Content-Type, Content-Disposition or Content-Transfer-Encoding, still folded."""
    return _cached(value) if len(value) <= _MAX_CACHED else _parsed(value)


def _parsed(value: bytes) -> MimeField:
    octets = value[:MAX_VALUE]
    if b"\n" in octets:
        octets = _folds(b"", octets)
    text, flaw = decode_text(octets, "")
    head, *segments = _split(text)
    head = without_comments(head)
    word = _word(head)
    if word is not None and head.startswith("=", word.end()):  # the field begins with a parameter
        word = None
    if "=" in head:  # a parameter without a semicolon before it
        segments.insert(0, head if word is None else head[word.end() :])
    parameters: list[MimeParameter] = []
    tails: dict[int, list[str]] = {}
    for segment in segments:
        if "=" in segment:
            parameters += islice(_parameters(segment, text), MAX_PARAMETERS + 1)
            if len(parameters) > MAX_PARAMETERS:
                break
        elif parameters and segment.strip():
            tails.setdefault(len(parameters) - 1, []).append(segment)
    for place, tail in tails.items():  # some programs read an unquoted name beyond a semicolon
        name, readings = parameters[place]
        parameters[place] = MimeParameter(name, (*readings, ";".join((readings[0], *tail))))
    cut = len(value) > MAX_VALUE or len(parameters) > MAX_PARAMETERS
    major, minor = (word[1].lower(), (word[2] or "").lower()) if word is not None else ("", "")
    named = any(_names_file(one.name) for one in parameters)
    extended = any("*" in one.name for one in parameters)
    return MimeField(major, minor, tuple(parameters[:MAX_PARAMETERS]), flaw, cut, named, extended)


_cached = lru_cache(maxsize=512)(_parsed)


def _split(text: str) -> list[str]:
    """Split a value at the semicolons outside of quotes; a quote that is not closed counts as a letter."""
    closed = _closed(text)
    end = 0 if closed is None else closed.end()
    found = [segment[:-1] for segment in _segments(text[:end] + ";")]
    if end < len(text):
        more = text[end:].split(";")
        found[-1] += more[0]
        found += more[1:]
    return found


def _parameters(segment: str, text: str) -> Iterator[MimeParameter]:
    """Yield the parameters between two semicolons: one, or several that lack the semicolon."""
    at = 0
    while (named := _named(segment, at)) is not None:
        at = named.end()
        quoted = _quoted_string(segment, _after_comments(segment, at))
        if quoted is None:
            following = _next_parameter(segment, at)
            end = len(segment) if following is None else following.start()
            readings = _unquoted_readings(segment[at:end], text)
        else:
            following = _named(segment, quoted.end())
            end = len(segment) if following is None else following.start()
            readings = _quoted_readings(quoted[0], segment[quoted.end() : end])
        yield MimeParameter(named[1].lower(), readings)
        at = end


def _after_comments(segment: str, at: int) -> int:
    while segment.startswith("(", at) and (end := segment.find(")", at)) >= 0:
        at = end + 1
        while segment[at : at + 1].isspace():
            at += 1
    return at


def _quoted_readings(quoted: str, after: str) -> tuple[str, ...]:
    content = quoted[1:-1]
    plain = _unescaped(r"\1", content) if "\\" in content else content
    after = without_comments(after).replace('"', "").strip()
    if not after and plain == content:
        return (plain,)
    return tuple(dict.fromkeys((plain, content, plain + after, f"{plain} {after}".strip())))


def _unquoted_readings(raw: str, text: str) -> tuple[str, ...]:
    value = raw.strip()
    first, *more = value.split(maxsplit=1) or ("",)
    if not ('"' in value or "(" in value or "\\" in value):
        return (value, first) if more else (value,)
    usual = _last_comment("", value).strip() or value
    readings = [usual, without_comments(value).strip(), value, value.replace('"', ""), _unescaped(r"\1", value)]
    readings += (value.partition('"')[0].strip(), first)
    if '"' in value:  # one that is not closed, perhaps with semicolons behind it
        opened = text.find(value)
        readings.append(text[opened:].replace('"', "").strip())
    readings[0] = readings[0].strip('"')
    return tuple(reading for reading in dict.fromkeys(readings) if reading) or ("",)


def _joined(pieces: list[tuple[str, bool]]) -> str:
    """Decode the pieces of a parameter; an escaped first piece may begin with charset and language."""
    charset = "utf-8"
    first, escaped = pieces[0]
    if escaped and first.count("'") >= 2:
        charset, _, first = first.split("'", 2)
    octets = [
        unquote_to_bytes(value) if escaped else value.encode() for value, escaped in [(first, escaped), *pieces[1:]]
    ]
    text = in_charset(b"".join(octets), charset)
    return decoded(text) if "=?" in text else text


def _one_line(name: str) -> str:
    return _breaks(" ", name)
