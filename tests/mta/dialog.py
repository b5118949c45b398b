"""Reads the SMTP dialogues of `tests/dialogs` and plays them: against the pure session and over a socket.

A line of a dialogue is one of

    # …                          a comment
    tls                          the client may use STARTTLS (default: it does not)
    tls required                 the client must use it, whatever the certificate
    envelope FROM -> TO … [| 8bit utf8 size=N text=…]
    S: …                         the server says; lines in a row go out in one write
    S*N: …                       the same line N times
    raw b"…"                     the server says these octets; raw*N b"…": N times
    C: …                         the client must say exactly this line; C~ …: a line matching this expression
    content N                    the client must write the content of envelope N, up to the final dot
    handshake                    TLS is negotiated
    flush                        what the server said so far arrives on its own
    close                        the server closes
    silence                      the server says no more: the client must give up
    => open PHASE WHAT           opening failed; WHAT is a reply code or a kind of break
    => N.M PHASE WHAT [local]    the answer to recipient M of envelope N
    => usable | over             the state of the session at the end
"""

import ast
import re
from pathlib import Path

from msgspec import Struct, field

from engine.mail.replies import Answer, Break, Reply
from mta.smtp.client.envelope import Envelope, dot_stuffed

FOLDER = Path(__file__).parent.parent / "dialogs"
HELO = "client.test"


class Line(Struct, frozen=True):
    """One step of a dialogue."""

    number: int
    kind: str
    text: str = ""
    raw: bytes = b""


class Dialog(Struct):
    """A whole dialogue."""

    name: str
    tls: bool = False
    required: bool = False
    envelopes: list[Envelope] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)


def files() -> list[Path]:
    """All dialogues."""
    return sorted(FOLDER.glob("*.smtp"))


def load(path: Path) -> Dialog:
    """Read one; ValueError names the line that can't be read."""
    dialog = Dialog(path.stem)
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            _read(dialog, number, line.rstrip("\n"))
        except (ValueError, IndexError, SyntaxError) as error:
            raise ValueError(f"{path.name}:{number}: {error}") from error
    return dialog


def content_of(envelope: Envelope) -> bytes:
    """What goes over the wire for it, final dot included."""
    return b"".join(dot_stuffed(envelope.content)) + b".\r\n"


def outcome(prefix: str, answer: Answer) -> str:
    """`1.2 rcpt 550`."""
    what = answer.outcome
    if isinstance(what, Reply):
        return f"{prefix} {answer.phase.value} {what.code}" + (" local" if what.local else "")
    assert isinstance(what, Break)
    assert what.detail
    return f"{prefix} {answer.phase.value} {what.kind.value}"


def matches(line: Line, said: bytes) -> bool:
    """Whether the client's line is the one expected."""
    text = said.decode("utf-8")
    return re.fullmatch(line.text, text) is not None if line.kind == "C~" else text == line.text


def _read(dialog: Dialog, number: int, line: str) -> None:
    word, _, rest = line.partition(" ")
    if not line or line.startswith("#"):
        return
    if word == "tls":
        dialog.tls, dialog.required = True, rest.strip() == "required"
    elif word == "envelope":
        dialog.envelopes.append(_envelope(rest))
    elif word == "=>":
        dialog.expected.append(rest.strip())
    elif word in ("S:", "C:", "C~"):
        dialog.lines.append(Line(number, word.rstrip(":"), rest, rest.encode() + b"\r\n"))
    elif word.startswith("S*"):
        dialog.lines.append(Line(number, "S", rest, (rest.encode() + b"\r\n") * int(word[2:-1])))
    elif word == "raw" or word.startswith("raw*"):
        raw = ast.literal_eval(rest)
        assert isinstance(raw, bytes)
        dialog.lines.append(Line(number, "S", rest, raw * int(word[4:] or 1)))
    elif word == "content":
        dialog.lines.append(Line(number, "content", rest, content_of(dialog.envelopes[int(rest) - 1])))
    elif word in ("handshake", "flush", "close", "silence"):
        dialog.lines.append(Line(number, word))
    else:
        raise ValueError(f"unknown: {line}")


def _envelope(text: str) -> Envelope:
    addresses, _, options = text.partition("|")
    sender, _, recipients = addresses.partition("->")
    words = dict(option.partition("=")[::2] for option in options.split())
    text = ast.literal_eval(f'"{words["text"]}"') if "text" in words else "Subject: hello\r\n\r\nhello\r\n"
    content = text.encode()
    if "size" in words:
        content = b"x" * (int(words["size"]) - 2) + b"\r\n"
    return Envelope(
        sender.strip(), tuple(recipients.split()), content,
        eight_bit="8bit" in words, smtputf8="utf8" in words,
    )  # fmt: skip
