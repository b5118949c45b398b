"""Parse SMTP command lines: verbs, paths and parameters (RFC 5321 4.1, RFC 1870, 4954, 6152, 6531); no I/O."""

import re
from typing import Final

from msgspec import Struct

from engine.mail.address import MAX_ADDRESS

MAX_COMMAND: Final = 512  # octets with CRLF: RFC 5321 4.5.3.1.4
MAX_PATH_COMMAND: Final = (
    MAX_COMMAND + 26 + 17 + 10 + 500
)  # MAIL with SIZE, BODY, SMTPUTF8 and AUTH: RFC 1870, 6152, 6531, 4954
MAX_AUTH_LINE: Final = 12_288  # RFC 4954 4
MAX_PARAMETERS: Final = 16
MAX_HOST: Final = 255  # octets: RFC 5321 4.5.3.1.2

_QUOTED: Final = r'"(?:[^"\\]|\\.)*+"'  # RFC 5321 4.1.2: Quoted-string
# Possessive, and escapes pass in pairs outside quotes, too: an open quote takes linear time.
_PATH: Final = rf"<((?>{_QUOTED}|\\[^<>]|[^<>])*+)>"
# The grammar has no blanks after the colon, but common clients write one, and it can't be misread.
_mail = re.compile(rf"FROM:[ ]{{0,4}}{_PATH}(.*)", re.IGNORECASE).fullmatch
_rcpt = re.compile(rf"TO:[ ]{{0,4}}{_PATH}(.*)", re.IGNORECASE).fullmatch
_without_quoted = re.compile(_QUOTED).sub
_route = re.compile(r"@[^:\s]+:").match  # RFC 5321 4.1.2: source routes are to be ignored
_parameter = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)(?:=([!-<>-~\x80-\U0010ffff]+))?").fullmatch
_controls = re.compile(rb"[\x00-\x1f\x7f]").search
# The first word of a browser that a web page makes talk to this port.
_FOREIGN: Final = frozenset({"GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "CONNECT"})


class BadCommand(ValueError):  # noqa: N818 - named for what the client gave
    """A command that the server refuses with `reply`."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.reply = reply


class SmtpCommand(Struct, frozen=True):
    """A command: the verb in capitals, and the argument without blanks around it."""

    verb: str
    argument: str


class MailCommand(Struct, frozen=True):
    """The argument of MAIL FROM. `size` is what the client declares, 0 without."""

    sender: str
    size: int = 0
    smtputf8: bool = False


def max_line_octets(line: bytes) -> int:
    """Return the limit of a line that begins like this, without its CRLF."""
    verb = line[:4].upper()
    if verb == b"AUTH":
        return MAX_AUTH_LINE
    return (MAX_PATH_COMMAND if verb in (b"MAIL", b"RCPT") else MAX_COMMAND) - 2


def parse_command(line: bytes) -> SmtpCommand:
    """Parse a line; raises BadCommand for control characters, and for octets that are not UTF-8 except in a greeting.

    Old clients give the name of their computer in its own charset.
    """
    if _controls(line) is not None:
        raise BadCommand("501 5.5.2 Control characters can't stand in a command")
    try:
        text = line.decode(errors="replace" if line[:5].upper() in (b"EHLO ", b"HELO ") else "strict")
    except UnicodeDecodeError:
        raise BadCommand("501 5.5.2 The command is not in UTF-8") from None
    verb, _, argument = text.partition(" ")
    return SmtpCommand(verb.upper(), argument.strip(" "))


def is_foreign_protocol(verb: str) -> bool:
    """Return True if the client speaks another protocol, such as HTTP."""
    return verb in _FOREIGN


def parse_host(argument: str) -> str:
    """Return the name that EHLO or HELO gives, its unprintable characters replaced.

    Any name is taken: many clients know none of their own, and RFC 5321 4.1.4 forbids to refuse mail for it.
    """
    if not argument or len(argument.encode()) > MAX_HOST:
        raise BadCommand(f"501 5.5.4 Say EHLO with a host name or an address literal of at most {MAX_HOST} octets")
    return argument if argument.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in argument)


def parse_mail(argument: str, *, extended: bool, max_octets: int) -> MailCommand:
    """Parse the argument of MAIL.

    `extended`: the client said EHLO, so parameters may follow. `max_octets` is the size of the largest message.
    """
    found = _mail(argument)
    if found is None:
        raise BadCommand("501 5.5.4 Syntax: MAIL FROM:<address>")
    given = _parameters(found[2], extended=extended)
    smtputf8 = "SMTPUTF8" in given
    if given.pop("SMTPUTF8", None) is not None:
        raise BadCommand("501 5.5.4 SMTPUTF8 takes no value")
    sender = _path(found[1], smtputf8=smtputf8, bad="553 5.1.7")
    size = _size(given.pop("SIZE", ""), max_octets)
    body = given.pop("BODY", "7BIT")
    if body is None or body.upper() not in ("7BIT", "8BITMIME"):
        raise BadCommand("501 5.5.4 BODY is 7BIT or 8BITMIME")
    given.pop("AUTH", None)  # RFC 4954 5: the original submitter is not passed on
    _refuse_others(given)
    return MailCommand(sender, size, smtputf8)


def parse_rcpt(argument: str, *, smtputf8: bool, extended: bool) -> str:
    """Return the address in the argument of RCPT; only its length and characters are checked."""
    found = _rcpt(argument)
    if found is None:
        raise BadCommand("501 5.5.4 Syntax: RCPT TO:<address>")
    address = _path(found[1], smtputf8=smtputf8, bad="553 5.1.3")
    if not address:
        raise BadCommand("501 5.1.3 A recipient can't be empty")
    _refuse_others(_parameters(found[2], extended=extended))
    return address


def _path(path: str, *, smtputf8: bool, bad: str) -> str:
    route = _route(path)
    address = path[route.end() :] if route is not None else path
    if len(address.encode()) > MAX_ADDRESS or " " in _without_quoted("", address):
        raise BadCommand(f"{bad} The address holds a blank, or more than {MAX_ADDRESS} octets")
    if not address.isascii() and not smtputf8:
        raise BadCommand("553 5.6.7 An address outside ASCII needs SMTPUTF8 with MAIL")
    return address


def _parameters(text: str, *, extended: bool) -> dict[str, str | None]:
    """Return parameters by name in capitals; None for one without a value."""
    if text and not text.startswith(" "):
        raise BadCommand("501 5.5.4 A blank must follow the address")
    words = text.split()
    if words and not extended:
        raise BadCommand("555 5.5.4 Parameters need EHLO")
    found: dict[str, str | None] = {}
    for word in words:
        match = _parameter(word)
        name = match[1].upper() if match is not None else ""
        if match is None or name in found or len(found) == MAX_PARAMETERS:
            raise BadCommand("501 5.5.4 A parameter is malformed or given twice")
        found[name] = match[2]
    return found


def _size(text: str | None, max_octets: int) -> int:
    if text == "":
        return 0
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20:  # RFC 1870 4
        raise BadCommand("501 5.5.4 SIZE is a number of octets")
    size = int(text)
    if size > max_octets:
        raise BadCommand(f"552 5.3.4 [payload_too_large] The message may have {max_octets} octets at the most")
    return size


def _refuse_others(given: dict[str, str | None]) -> None:
    for name in given:
        raise BadCommand(f"555 5.5.4 The parameter {name[:40]} is not known here")
