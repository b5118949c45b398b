"""Parse the address lists of From, To and their like (RFC 5322 3.4 and 4.4, RFC 6854). Pure; linear; never raises.

One parser serves received mail, submitted mail and DMARC. It finds the address that mail programs show, also in forms
that no RFC allows, and says in `doubt` why a program could show another one. The mailbox shows every entry; `undoubted`
refuses those with a doubt for submission and DMARC.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from engine.mail.address import BadAddress, Mailbox, path_mailbox, unmapped_domain
from engine.mail.charsets import CharsetFlaw
from engine.mail.encoded_words import readings, shown, words

MAX_ENTRY: Final = 10_000  # characters of one entry that `undoubted` accepts, its name still encoded
MAX_ADDRESS: Final = 320  # characters: RFC 3696 3, 64 for the local part and 255 for the domain
MAX_TOKENS: Final = 12_000  # read of one field; a thousand addresses with names have about 9,000
_MAX_AUTHORS: Final = 100  # counted of one From
_MAX_ENTRY_TOKENS: Final = 500  # of one entry
_SCHEMES: Final = frozenset({"mailto", "smtp"})
_WITH_SCHEME: Final = "The address begins with the name of a scheme, such as `mailto:`."
TOO_MANY_WORDS: Final = "The address field has too many words and signs; the rest was not read."
_MAX_NAME: Final = 4_096  # characters of a name that are decoded

_PLAIN: Final = r"[A-Za-z0-9!#$%&'*+/?^_`{|}~.-]+@[A-Za-z0-9.-]+"
_NAME: Final = r"\x00-\x1f\x7f-\x9f\ud800-\udfff\"\\="  # what a name that needs no decoding lacks
# The usual forms of a field with one mailbox: bare, in brackets, with such a name.
_usual = re.compile(
    rf'[ \t]*+(?:({_PLAIN})|(?:([^{_NAME}(),;:<>@\[\]]*+)|"([^{_NAME}]*+)"[ \t]*+)<({_PLAIN})>)[ \t]*+'
).fullmatch
_BLANK: Final = r"\x00-\x20\x7f-\x9f\u2028\u2029"
_token = re.compile(rf'([{_BLANK}]++)|(\[[^\[\]]*+\])|([(),;:<>@\[\]\\])|"|[^{_BLANK}"(),;:<>@\[\]\\]++').match
_QUOTED: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_quoted_string = re.compile(_QUOTED, re.DOTALL).match
_in_comment = re.compile(r"[()]|\\.", re.DOTALL).finditer
_escaped = re.compile(r"\\(.)", re.DOTALL).sub
_specials = re.compile(r'[<>",;:@()\\]').search
_address_signs = re.compile("[@\uff20\ufe6b<]").search
_address = re.compile(
    rf'(?:{_QUOTED}|[^\s<>()\[\],;:@"])+@(?:\[[^\s\[\]<>@]*+\]|[^\s<>()\[\],;:@"\\]++)', re.DOTALL
).fullmatch
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_needless_quotes = re.compile(rf'"({_ATOM}(?:\.{_ATOM})*)"@(.*)').fullmatch


class NotOneAddress(BadAddress):
    """The field has no address, or several."""


class ListedMailbox(NamedTuple):
    """A mailbox, or an entry without an address, as it stands in an address list.

    `name` has no quotes and comments; its encoded words are not decoded. `address` is "" if the entry has none: `name`
    then is the entry, or the name of an empty group.
    """

    name: str
    address: str
    doubt: str = ""  # why a mail program could show another address; "" if there is no reason
    written: str = ""
    group: bool = False  # it stands in a group, or is an empty one

    @property
    def readable(self) -> bool:
        """Return True for an address, and for the name of an empty group."""
        return bool(self.address) or self.group


def listed(text: str) -> Iterator[ListedMailbox]:
    """Yield the entries of an unfolded address list, also those in groups, and the names of empty groups."""
    usual = _usual(text)
    if usual is not None and len(text) <= MAX_ADDRESS:
        name = (usual[2] or "").strip(" \t") or usual[3] or ""
        yield ListedMailbox(name, _lowered(usual[1] or usual[4]), written=text.strip(" \t"))
        return
    yield from _Parser(text).entries()


def author(text: str) -> Mailbox:
    """Return the one mailbox of an unfolded From or Sender, which all mail programs read alike. Raises BadAddress.

    A group has no author, even with one member: programs that do not know groups show its name as the address.
    """
    if len(text) > MAX_ENTRY:
        raise BadAddress(f"The field has more than {MAX_ENTRY} characters; shorten it.")
    found = [one for one in islice(listed(text), _MAX_AUTHORS) if one.address or not one.group]
    if len(found) != 1:
        for one in found:
            if one.doubt:
                raise BadAddress(one.doubt)
        raise NotOneAddress(f"From contains {len(found) or 'no'} addresses; it must contain exactly one.")
    if found[0].group:
        raise BadAddress("The address is in a group; write it without one.")
    return undoubted(found[0])


def undoubted(one: ListedMailbox) -> Mailbox:
    """Return the mailbox of an entry, its name decoded. Raises BadAddress unless all mail programs read it alike."""
    if len(one.written) > MAX_ENTRY:
        raise BadAddress(f"The address and its name are longer than {MAX_ENTRY} characters.")
    if one.doubt:
        raise BadAddress(one.doubt)
    if not one.address:
        raise BadAddress("The field has no address such as ann@example.com.")
    if len(readings(one.name)) > 1:
        raise BadAddress("The name before the address contains an encoded word within another.")
    if "=?" in one.address:
        raise BadAddress("The address is encoded.")
    unmapped_domain(one.address.rpartition("@")[2])
    return Mailbox(display_name(one)[0], path_mailbox(one.address).address)


def display_name(one: ListedMailbox) -> tuple[str, CharsetFlaw | None]:
    """Return the name of an entry in one line, its encoded words decoded, and the flaw of its characters."""
    return shown(one.name[:_MAX_NAME])


def without_comments(text: str) -> str:
    """Return an unfolded value without its comments (RFC 5322 3.2.2); one without end stays."""
    pieces: list[str] = []
    at = 0
    while (begin := text.find("(", at)) >= 0 and (end := _comment_end(text, begin)) > 0:
        pieces.append(text[at:begin])
        at = end
    pieces.append(text[at:])
    return " ".join(pieces)


def _comment_end(text: str, begin: int) -> int:
    """Return the offset behind the comment that begins at an offset; -1 if it has no end."""
    depth = 0
    for found in _in_comment(text, begin):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return -1


class _Token(NamedTuple):
    """A blank (" "), a special, or a piece of text, of which `text` is as it is written."""

    kind: str  # " ", '"', "[", a special, "=" for an encoded word, "" for an atom
    text: str


class _Parser:
    """Read one list. The state is that of the entry that is being read, and of the group around it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = words(text)  # read as far as the tokens
        self._word = next(self._words, None)
        self._quotes = self._comments = True  # False behind the first one that has no end
        self._found = 0
        self._group: str | None = None
        self._before_group = 0  # entries found before the group
        self._begin(0)

    def _begin(self, at: int) -> None:
        self._start = at
        self._before: list[_Token] = []
        self._inside: list[_Token] | None = None
        self._after: list[_Token] = []
        self._notes: list[str] = []
        self._doubt = ""
        self._size = 0  # tokens
        self._open = False  # within angle brackets
        self._closed = at  # behind them
        self._comma = self._comma_end = -1  # the place of an unquoted comma in a name, and the offset behind it
        self._has_at = False  # before the angle brackets

    def entries(self) -> Iterator[ListedMailbox]:
        """Yield all entries."""
        at = 0
        for _ in range(MAX_TOKENS):
            if at == len(self._text) or self._size == _MAX_ENTRY_TOKENS:
                break
            token, end = self._next(at)
            self._size += 1
            if token.kind in {",", ";", ":", "<", ">"}:
                yield from self._special(token, at, end)
            else:
                self._add(token)
            at = end
        if at < len(self._text):
            self._doubt = TOO_MANY_WORDS
            at = len(self._text)
        yield from self._ended(at)
        if self._group is not None:
            yield from self._group_ended("The group has no end.")

    def _next(self, at: int) -> tuple[_Token, int]:
        """Return the token at an offset, a comment as a blank, and the offset behind it."""
        while self._word is not None and self._word.start < at:
            self._word = next(self._words, None)
        word = self._word
        if word is not None and word.start == at:
            if _specials(word.payload) is not None:
                self._suspect("The name before the address contains an encoded word with special characters.")
            return _Token("=", self._text[at : word.end]), word.end
        if self._quotes and self._text[at] == '"':
            return self._quoted(at)
        found = _token(self._text, at)
        assert found is not None  # the alternatives cover every character
        blank, literal, special = found.groups()
        if blank is not None:
            if blank.strip(" \t"):
                self._suspect("The address field contains control characters.")
            return _Token(" ", " " if blank.strip(" \t") else blank), found.end()
        if special == "(":
            return self._comment(at)
        return _Token("[" if literal is not None else special or "", found[0]), found.end()

    def _quoted(self, at: int) -> tuple[_Token, int]:
        found = _quoted_string(self._text, at)
        if found is not None:
            return _Token('"', found[0]), found.end()
        self._quotes = False
        self._suspect("A quoted name has no closing quote.")
        return _Token("", '"'), at + 1

    def _comment(self, at: int) -> tuple[_Token, int]:
        end = _comment_end(self._text, at) if self._comments else -1
        if end < 0:
            self._comments = False
            self._suspect("A comment has no closing bracket.")
            return _Token("", "("), at + 1
        self._notes.append(_escaped(r"\1", self._text[at + 1 : end - 1]).strip())
        return _Token(" ", " "), end

    def _special(self, token: _Token, at: int, end: int) -> Iterator[ListedMailbox]:
        if token.kind == "<":
            yield from self._opened()
        elif token.kind == ">":
            if not self._open:
                self._suspect("The address ends with > but has no <.")
            self._open, self._closed = False, end
        elif self._open and token.kind != ";" and (token.kind == ":" or _first(self._inside or []) == "@"):
            self._add(token)  # of a source route (RFC 5322 4.4), or of `mailto:`
        elif token.kind == ":":
            self._colon(token, end)
        elif self._comma < 0 and self._is_phrase() and (token.kind == "," or self._group is None):
            self._comma, self._comma_end = len(self._before), end
            self._before.append(token)
        else:
            yield from self._ended(at)
            self._begin(end)
            if token.kind == ";" and self._group is not None:
                yield from self._group_ended("")

    def _opened(self) -> Iterator[ListedMailbox]:
        if self._open:  # `<<ann@example.com>>`
            self._suspect("The address contains < within angle brackets.")
            self._before += self._inside or ()
        elif self._inside is not None:  # a comma is missing
            before, self._after = self._after, []
            closed = self._closed
            self._suspect("A comma is missing between two addresses.")
            yield from self._ended(closed)
            self._begin(closed)
            self._before = before
            self._suspect("A comma is missing between two addresses.")
        self._open, self._inside = True, []

    def _colon(self, token: _Token, end: int) -> None:
        may_name = self._inside is None and not self._has_at
        name = _phrase(self._before) if may_name and (self._group is None or len(self._before) <= 2) else ""
        if name.lower() in _SCHEMES:
            self._begin(end)
            self._suspect(_WITH_SCHEME)
        elif name and self._group is None:
            self._group, self._before_group = name, self._found
            self._begin(end)
        else:
            self._suspect("The name before the address contains : outside quotes.")
            self._add(token)

    def _ended(self, end: int) -> Iterator[ListedMailbox]:
        """Yield the entry that ends at an offset, if there is one."""
        if self._open:
            self._suspect("The address has no >.")
        if self._comma >= 0 and not self._address_of(self._inside or ())[0]:
            first = self._without_address(self._before[: self._comma], self._comma_end - 1)
            if first.name:
                self._found += 1
                yield first
            self._before = self._before[self._comma + 1 :]
            self._start = self._comma_end
        elif self._comma >= 0:
            self._suspect("The name before the address contains , or ; outside quotes.")
        one = self._bracketed(end) if self._inside is not None else self._bare(end)
        if one.name or one.address:
            self._found += 1
            yield one

    def _group_ended(self, doubt: str) -> Iterator[ListedMailbox]:
        if self._found == self._before_group and self._group:
            self._found += 1
            yield ListedMailbox(self._group, "", doubt, self._group, group=True)
        self._group = None

    def _entry(self, name: str, address: str, end: int) -> ListedMailbox:
        written = self._text[self._start : end].strip(" \t")
        return ListedMailbox(name, address, self._doubt, written, self._group is not None and bool(address))

    def _bracketed(self, end: int) -> ListedMailbox:
        inside = self._inside or []
        address, doubt = self._address_of(inside)
        name, behind = _phrase(self._before), _phrase(self._after)
        self._suspect(doubt)
        if behind:
            self._suspect("There is text after the address. Remove it.")
        if (self._has_at or any(one.kind == "\\" for one in self._before)) and name.lower() != address.lower():
            self._suspect("The name before the address contains @ or \\ outside quotes.")
        name = " ".join(filter(None, (name, behind))) or self._name_of_notes()
        self._check_notes(name)
        if not address and _phrase(inside):  # what stands there must not vanish
            name = self._text[self._start : end].strip(" \t")
        return self._entry(name, address, end)

    def _bare(self, end: int) -> ListedMailbox:
        address, doubt = self._address_of(self._before)
        if address:
            name = self._name_of_notes()
            self._suspect(doubt)
            self._check_notes(name)
            return self._entry(name, address, end)
        pieces = _divided(self._before)
        candidates = [place for place, piece in enumerate(pieces) if any("@" in one.text for one in piece)]
        if len(candidates) == 1 and len(pieces) > 1:
            address, _ = self._address_of(_unbracketed(pieces[candidates[0]]))
        if not address:
            return self._without_address(self._before, end)
        self._suspect("The address has other words beside it. Put it in angle brackets: Name <ann@example.com>.")
        others = [piece for place, piece in enumerate(pieces) if place != candidates[0]]
        return self._entry(" ".join(map(_phrase, others)), address, end)

    def _without_address(self, tokens: Sequence[_Token], end: int) -> ListedMailbox:
        name = _phrase(tokens)
        if not name:  # comments between entries have no meaning
            alone = not self._found and self._group is None
            return self._entry(" ".join(self._notes) if alone else "", "", end)
        if any(one.kind == "=" for one in tokens):  # some programs encode the field as a whole
            inner = list(islice(listed(shown(name[:_MAX_NAME])[0].replace("=?", "")), 2))
            if len(inner) == 1 and inner[0].address:
                self._suspect("The address is encoded.")
                return self._entry(inner[0].name, inner[0].address, end)
        return self._entry(self._text[self._start : end].strip(" \t") if self._notes else name, "", end)

    def _name_of_notes(self) -> str:
        """Return the name in the obsolete form `ann@example.com (Ann)`."""
        return self._notes[-1] if self._notes else ""

    def _check_notes(self, name: str) -> None:
        """Doubt the entry if a comment that is not its name holds an address: some programs show that one."""
        for note in self._notes:
            if note != name and _address_signs(shown(note[:_MAX_NAME])[0]) is not None:
                self._suspect("A comment contains an address.")

    def _address_of(self, tokens: Sequence[_Token]) -> tuple[str, str]:
        """Return the address that tokens spell, "" if they spell none, and the doubt about it."""
        found = [one for one in tokens if one.kind != " "]
        doubt = ""
        if found and found[0].kind == "@":
            colons = [place for place, one in enumerate(found) if one.kind == ":"]
            found, doubt = found[colons[-1] + 1 :] if colons else [], "The address has a source route."
        elif len(found) > 1 and found[0].text.lower() in _SCHEMES and found[1].kind == ":":
            found, doubt = found[2:], _WITH_SCHEME
        text = "".join([one.text for one in found])
        if text.startswith("'") and text.endswith("'"):
            text, doubt = text[1:-1], "The address is in single quotes."
        encoded = any(one.kind == "=" for one in found)
        if encoded or len(text) > MAX_ADDRESS or _address(text) is None or _has_gap(tokens):
            return "", ""
        text = shown(text)[0] if any("\udc80" <= one <= "\udcff" for one in text) else text
        plain = _needless_quotes(text)
        return _lowered(f"{plain[1]}@{plain[2]}" if plain else text), doubt

    def _is_phrase(self) -> bool:
        return self._inside is None and not self._has_at and any(one.kind in {"", "=", '"'} for one in self._before)

    def _add(self, token: _Token) -> None:
        """Add a token before, within or behind the angle brackets."""
        if self._inside is None:
            self._has_at = self._has_at or token.kind == "@"
            self._before.append(token)
        else:
            (self._inside if self._open else self._after).append(token)

    def _suspect(self, doubt: str) -> None:
        self._doubt = self._doubt or doubt


def _first(tokens: Sequence[_Token]) -> str:
    return next((one.kind for one in tokens if one.kind != " "), "")


def _phrase(tokens: Sequence[_Token]) -> str:
    """Return the words of a name without their quotes and escapes."""
    pieces: list[str] = []
    for one in tokens:
        if one.kind == '"':
            pieces.append(_escaped(r"\1", one.text[1:-1]))
        elif one.kind != " " or (pieces and pieces[-1] != " "):
            pieces.append(one.text)
    return "".join(pieces).strip(" \t")


def _divided(tokens: Sequence[_Token]) -> list[list[_Token]]:
    """Return the groups of tokens between blanks."""
    pieces: list[list[_Token]] = [[]]
    for one in tokens:
        if one.kind == " ":
            pieces.append([])
        else:
            pieces[-1].append(one)
    return [piece for piece in pieces if piece]


def _unbracketed(piece: list[_Token]) -> list[_Token]:
    """Return the tokens of an address in square brackets, as in `Ann [mailto:ann@example.com]`."""
    if len(piece) != 1 or piece[0].kind != "[":
        return piece
    return [_Token("", piece[0].text[1:-1].strip().removeprefix("mailto:"))]


def _has_gap(tokens: Sequence[_Token]) -> bool:
    """Return True for a blank between two words of an address; around dots and `@` they have no meaning (4.4)."""
    last, gap = "", False
    for one in tokens:
        if one.kind == " ":
            gap = bool(last)
            continue
        if gap and last[-1] not in ".@:," and one.text[0] not in ".@:,":
            return True
        last, gap = one.text, False
    return False


def _lowered(address: str) -> str:
    local, _, domain = address.rpartition("@")
    # Other letters stay: the lower case of the Kelvin sign is an ASCII letter.
    return f"{local}@{domain.lower() if domain.isascii() else domain}"
