"""Messages built from parts in the spellings of many mail programs, with what a reader must show of each.

`corpus` lists more than 400 of them, and `written` is a hypothesis strategy for others: structure, spellings of
boundaries, file names, encodings, and faults.
"""

import base64
import binascii
import itertools
import quopri
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from email.header import Header
from urllib.parse import quote

from hypothesis import strategies as st

HEAD = b"From: Ann <ann@people.test>\r\nTo: help@own.test\r\nSubject: s\r\nMIME-Version: 1.0\r\n"
PDF = b"%PDF-1.7\r\n\0\xff"
PNG = b"\x89PNG\r\n\x1a\n\0\xff"


@dataclass(frozen=True)
class Written:
    """A message, the words that its body shows, and its files in order, each with a name (or None) and its content.

    `features`: the spellings and faults in it; other readers are known to differ at some of them.
    """

    label: str
    mime: bytes
    words: tuple[str, ...]
    files: tuple[tuple[str | None, bytes], ...]
    features: frozenset[str]


@dataclass
class Writer:
    """The spellings of one message. Collects the words, files and features of its parts while they are written."""

    encoding: str = "quoted-printable"
    charset: str = "utf-8"
    boundary: str = "plain"
    name: str = "RFC 2231"
    declared: str = "{}"  # how the transfer encoding of files is spelled
    faults: frozenset[str] = frozenset()
    words: list[str] = field(default_factory=list)
    files: list[tuple[str | None, bytes]] = field(default_factory=list)
    depth: int = 0

    def text(self, word: str, kind: str = "plain", extra: str = "") -> bytes:
        """Write a body part with this word."""
        self.words.append(word)
        content = f"<p>{word} gr\u00fc\u00dfe</p>\r\n" if kind == "html" else f"{word} gr\u00fc\u00dfe\r\n"
        octets = content.encode(self.charset)
        if self.encoding == "7bit":
            octets = octets.decode(self.charset).replace("\u00fc\u00df", "uess").encode("ascii")
        head = f"Content-Type: text/{kind}; charset={self.charset}{extra}\r\n"
        return head.encode() + _transfer(self.encoding) + b"\r\n" + encoded(octets, self.encoding)

    def file(self, name: str | None = "", content: bytes = PDF, kind: str = "application/pdf") -> bytes:
        """Write an attachment; "" for a usual name in the letters that the spelling can have."""
        name = ("bill.pdf" if self.name in ASCII else "b\u00e4r.pdf") if name == "" else name
        self.files.append((name, content))
        head = f"Content-Type: {kind}\r\nContent-Transfer-Encoding: {self.declared.format('base64')}\r\n"
        named = "" if name is None else "; " + NAMES[self.name](name)
        disposition = f"Content-Disposition: attachment{named}\r\n".encode("utf-8", "surrogateescape")
        return head.encode() + disposition + b"\r\n" + encoded(content, "base64")

    def image(self) -> bytes:
        """Write an image that HTML shows."""
        self.files.append((None, PNG))
        head = b"Content-Type: image/png\r\nContent-ID: <logo>\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        return head + encoded(PNG, "base64")

    def multi(self, subtype: str, *parts: Callable[[], bytes]) -> bytes:
        """Write a multipart."""
        declared, boundary = BOUNDARIES[self.boundary](self.depth)
        self.depth += 1
        written = [part() for part in parts]
        self.depth -= 1
        blanks = b"  " if "blanks after delimiters" in self.faults else b""
        before = b"This is a message in MIME.\r\n" if "preamble" in self.faults else b""
        body = b"".join(b"--" + boundary + blanks + b"\r\n" + part + b"\r\n" for part in written)
        end = b"" if "no end" in self.faults and not self.depth else b"--" + boundary + b"--\r\n"
        after = b"footer of a list\r\n" if "epilogue" in self.faults and end and not self.depth else b""
        separator = "" if self.boundary == "no semicolon" else ";"
        return f"Content-Type: multipart/{subtype}{separator} {declared}\r\n\r\n".encode() + before + body + end + after

    def message(self, structure: str) -> Written:
        """Write a message of this structure."""
        mime = HEAD + STRUCTURES[structure](self)
        if "bare line feeds" in self.faults:
            mime = mime.replace(b"\r\n", b"\n")
        features = {f"boundary {self.boundary}", f"name {self.name}", f"declared {self.declared}", *self.faults}
        features |= {structure, f"{self.encoding} in {self.charset}"}
        label = ", ".join(sorted(features))
        return Written(label, mime, tuple(self.words), tuple(self.files), frozenset(features))


def encoded(octets: bytes, encoding: str) -> bytes:
    """Encode content; the last line end belongs to the delimiter that follows."""
    if encoding == "base64":
        return base64.encodebytes(octets).replace(b"\n", b"\r\n").removesuffix(b"\r\n")
    if encoding == "quoted-printable":
        return quopri.encodestring(octets.replace(b"\r\n", b"\n")).replace(b"\n", b"\r\n").removesuffix(b"\r\n")
    if encoding == "x-uuencode":
        lines = [binascii.b2a_uu(octets[at : at + 45]) for at in range(0, len(octets), 45)]
        return (b"begin 644 x\n" + b"".join(lines) + b"`\nend").replace(b"\n", b"\r\n")
    return octets.removesuffix(b"\r\n")


def _transfer(encoding: str) -> bytes:
    return f"Content-Transfer-Encoding: {encoding}\r\n".encode()


def _words(name: str, encoding: str) -> str:
    return Header(name, "utf-8", maxlinelen=40).encode(linesep="\r\n") if encoding == "b" else _q_word(name)


def _q_word(name: str) -> str:
    return "=?utf-8?q?" + "".join(f"={octet:02X}" for octet in name.encode()) + "?="


def _pieces(name: str) -> str:
    half = len(name) // 2
    return f"filename*0*=utf-8''{quote(name[:half])};\r\n filename*1*={quote(name[half:])}"


def _plain_pieces(name: str) -> str:
    half = len(name) // 2
    return f'filename*0="{name[:half]}";\r\n filename*1="{name[half:]}"'


# How programs write a file name. Each gives the parameter of Content-Disposition.
NAMES: dict[str, Callable[[str], str]] = {
    "quoted": lambda name: f'filename="{name}"',
    "unquoted": lambda name: f"filename={name}",
    "upper case": lambda name: f'FILENAME="{name}"',
    "blanks around": lambda name: f'filename = "{name}"',
    "RFC 2231": lambda name: f"filename*=utf-8''{quote(name)}",
    "RFC 2231 in Latin-1": lambda name: f"filename*=iso-8859-1'de'{quote(name.encode('latin-1'))}",
    "pieces": _pieces,
    "plain pieces": _plain_pieces,
    "encoded word": lambda name: f'filename="{_q_word(name)}"',
    "encoded word, base64": lambda name: f'filename="{_words(name, "b")}"',
    "encoded words, folded": lambda name: f'filename="{_q_word(name[:2])}\r\n {_q_word(name[2:])}"',
    "encoded word, unquoted": lambda name: f"filename={_q_word(name)}",
    "comment": lambda name: f'filename="{name}" (a file)',
    "comment, unquoted": lambda name: f"filename={name} (a file)",
    "escaped": lambda name: 'filename="' + "".join("\\" + letter for letter in name) + '"',
    "second": lambda name: f'size=3; filename="{name}"; filename="{name}"',
    "raw UTF-8": lambda name: f'filename="{name}"',
    "raw Latin-1": lambda name: f'filename="{name.encode("latin-1").decode("ascii", "surrogateescape")}"',
    "open quote": lambda name: f'filename="{name}',
    "no semicolon": lambda name: f"size=3 filename={name}",
}
ASCII = frozenset(NAMES) - {
    "RFC 2231", "RFC 2231 in Latin-1", "pieces", "encoded word", "encoded word, base64", "encoded words, folded",
    "encoded word, unquoted", "raw UTF-8", "raw Latin-1",
}  # fmt: skip
# How programs write a boundary: the parameter, and the boundary itself.
BOUNDARIES: dict[str, Callable[[int], tuple[str, bytes]]] = {
    "plain": lambda depth: (f'boundary="=_{depth}"', f"=_{depth}".encode()),
    "unquoted": lambda depth: (f"boundary=b{depth}", f"b{depth}".encode()),
    "upper case": lambda depth: (f"BOUNDARY=b{depth}", f"b{depth}".encode()),
    "blanks and specials": lambda depth: (f'boundary="a (b)/c?{depth}"', f"a (b)/c?{depth}".encode()),
    "escaped": lambda depth: (f'boundary="a\\"b{depth}"', f'a"b{depth}'.encode()),
    "RFC 2231": lambda depth: (f"boundary*=us-ascii''b%2F{depth}", f"b/{depth}".encode()),
    "pieces": lambda depth: (f"boundary*0=aa; boundary*1=b{depth}", f"aab{depth}".encode()),
    "comment": lambda depth: (f'boundary="b{depth}" (made by hand)', f"b{depth}".encode()),
    "comment, unquoted": lambda depth: (f"boundary=b{depth} (made by hand)", f"b{depth}".encode()),
    "brackets": lambda depth: (f"boundary=(b{depth})", f"(b{depth})".encode()),
    "folded": lambda depth: (f'\r\n boundary="b{depth}\r\n x"', f"b{depth} x".encode()),
    "no semicolon": lambda depth: (f'boundary="b{depth}"', f"b{depth}".encode()),
    "of the parent": lambda _depth: ('boundary="b"', b"b"),
    "begins like the parent's": lambda depth: (f'boundary="{"b" * (depth + 1)}"', b"b" * (depth + 1)),
    "parent's and dashes": lambda depth: (f'boundary="a{"--" * depth}"', b"a" + b"--" * depth),
    "dashes of the parent": lambda depth: (f'boundary="a{"--" * (4 - depth)}"', b"a" + b"--" * (4 - depth)),
}
DECLARED = ("{}", "{} (comment)", '"{}"', "{};", "(c) {}", " {} ", "\r\n {}")
FAULTS = ("no end", "epilogue", "bare line feeds", "preamble", "blanks after delimiters")

STRUCTURES: dict[str, Callable[[Writer], bytes]] = {
    "text": lambda one: one.text("alpha"),
    "HTML": lambda one: one.text("alpha", "html"),
    "named HTML": lambda one: one.text("alpha", "html", '; name="body.html"'),
    "alternative": lambda one: one.multi("alternative", lambda: one.text("alpha"), lambda: one.text("beta", "html")),
    "named alternative": lambda one: one.multi(
        "alternative", lambda: one.text("alpha", "plain", "; name=a.txt"),
        lambda: one.text("beta", "html", "; name=a.html"),
    ),
    "text and file": lambda one: one.multi("mixed", lambda: one.text("alpha"), one.file),
    "file alone": lambda one: one.file(),
    "HTML and footer": lambda one: one.multi("mixed", lambda: one.text("alpha", "html"), lambda: one.text("beta")),
    "text, image, text": lambda one: one.multi("mixed", lambda: one.text("alpha"), one.image, lambda: one.text("beta")),
    "related": lambda one: one.multi("related", lambda: one.text("alpha", "html"), one.image),
    "alternative of related": lambda one: one.multi(
        "alternative", lambda: one.text("alpha"),
        lambda: one.multi("related", lambda: one.text("beta", "html"), one.image),
    ),
    "alternative and files": lambda one: one.multi(
        "mixed",
        lambda: one.multi("alternative", lambda: one.text("alpha"), lambda: one.text("beta", "html")),
        one.file, lambda: one.file("b.csv", b"1,2\r\n", "text/csv"),
    ),
    "alternative of mixed": lambda one: one.multi(
        "alternative", lambda: one.text("alpha"),
        lambda: one.multi("mixed", lambda: one.text("beta", "html"), one.file, lambda: one.text("gamma")),
    ),
    "deep": lambda one: one.multi(
        "mixed",
        lambda: one.multi(
            "related",
            lambda: one.multi("alternative", lambda: one.text("alpha"), lambda: one.text("beta", "html")),
            one.image,
        ),
        one.file,
    ),
    "report": lambda one: one.multi(
        "report", lambda: one.text("alpha"), lambda: one.file(None, b"Status: 5.1.1\r\n", "application/x-status"),
    ),
    "files alone": lambda one: one.multi("mixed", one.file, lambda: one.file("c.bin", bytes(range(256)) * 40)),
    "calendar": lambda one: one.multi(
        "alternative", lambda: one.text("alpha"), lambda: one.text("beta", "html"),
        lambda: one.file(None, b"BEGIN:VCALENDAR\r\n", "text/calendar; method=REQUEST"),
    ),
}  # fmt: skip
_ENCODINGS = (("7bit", "us-ascii"), ("8bit", "utf-8"), ("quoted-printable", "iso-8859-1"), ("base64", "windows-1252"))
_TREES = tuple(name for name in STRUCTURES if "and" in name or "of" in name or name in {"deep", "related", "report"})
_WITH_FILE = ("text and file", "alternative and files", "deep", "file alone")


def _latin(encoding: str) -> str:
    return "utf-8" if encoding == "us-ascii" else encoding


def corpus() -> Iterator[Written]:
    """Yield the messages of the corpus."""
    for structure, (encoding, charset) in itertools.product(STRUCTURES, _ENCODINGS):
        yield Writer(encoding=encoding, charset=_latin(charset)).message(structure)
    for structure, boundary in itertools.product(_TREES, BOUNDARIES):
        yield Writer(boundary=boundary).message(structure)
    for structure, name in itertools.product(_WITH_FILE, NAMES):
        yield Writer(name=name).message(structure)
    for structure, declared in itertools.product(_WITH_FILE, DECLARED):
        yield Writer(declared=declared).message(structure)
    for boundary, fault in itertools.product(BOUNDARIES, FAULTS):
        yield Writer(boundary=boundary, faults=frozenset({fault})).message("alternative and files")
    for structure, fault in itertools.product(STRUCTURES, FAULTS):
        yield Writer(faults=frozenset({fault})).message(structure)


def written(structure: str) -> st.SearchStrategy[Written]:
    """Return a strategy for messages of a structure, with any spellings and faults."""
    return st.builds(
        lambda encoding, boundary, name, declared, faults: Writer(
            encoding=encoding[0], charset=_latin(encoding[1]), boundary=boundary, name=name, declared=declared,
            faults=frozenset(faults),
        ).message(structure),
        st.sampled_from(_ENCODINGS), st.sampled_from(sorted(BOUNDARIES)),
        st.sampled_from(sorted(NAMES)), st.sampled_from(DECLARED), st.sets(st.sampled_from(FAULTS), max_size=3),
    )  # fmt: skip


def contents(files: Sequence[tuple[str | None, bytes]]) -> list[bytes]:
    """Return the contents of files."""
    return [content for _, content in files]
