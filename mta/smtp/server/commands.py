"""SMTP command lines read: verbs, paths and parameters (RFC 5321 4.1, RFC 1870, 4954, 6152, 6531); pure."""

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

# Blanks after the colon are no part of the grammar; common clients write one, and it can't be misread.
_mail = re.compile(r"FROM:[ ]{0,4}<([^<>]*)>(.*)", re.IGNORECASE).fullmatch
_rcpt = re.compile(r"TO:[ ]{0,4}<([^<>]*)>(.*)", re.IGNORECASE).fullmatch
_route = re.compile(r"@[^:\s]+:").match  # RFC 5321 4.1.2: source routes are to be ignored
_parameter = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)(?:=([!-<>-~\x80-\U0010ffff]+))?").fullmatch
_host = re.compile(r"[A-Za-z0-9_.:\[\]-]{1,255}").fullmatch  # RFC 5321 4.1.1.1, and the underscores of real life
_controls = re.compile(rb"[\x00-\x1f\x7f]").search
# What a browser says when a web page makes it talk to this port.
_FOREIGN: Final = frozenset({"GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "CONNECT"})


class BadCommand(ValueError):  # noqa: N818 - named for what the client gave
    """The command can't be carried out; `reply` is what the client hears."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.reply = reply


class SmtpCommand(Struct, frozen=True):
    """One line: the verb in capitals and what follows it, without blanks around."""

    verb: str
    argument: str


class MailCommand(Struct, frozen=True):
    """MAIL FROM. `size` is what the client declares, 0 when it does not."""

    sender: str
    size: int = 0
    smtputf8: bool = False


def max_line_octets(line: bytes) -> int:
    """How long the line that begins so may be, its CRLF not counted."""
    verb = line[:4].upper()
    if verb == b"AUTH":
        return MAX_AUTH_LINE
    return (MAX_PATH_COMMAND if verb in (b"MAIL", b"RCPT") else MAX_COMMAND) - 2


def parse_command(line: bytes) -> SmtpCommand:
    """The command of a line; raises BadCommand for control characters and octets that are no UTF-8."""
    if _controls(line) is not None:
        raise BadCommand("501 5.5.2 Control characters can't stand in a command")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise BadCommand("501 5.5.2 The command is not in UTF-8") from None
    verb, _, argument = text.partition(" ")
    return SmtpCommand(verb.upper(), argument.strip(" "))


def is_foreign_protocol(verb: str) -> bool:
    """True for the words of another protocol: there is no point in going on."""
    return verb in _FOREIGN


def parse_host(argument: str) -> str:
    """The name that a client gives in EHLO or HELO."""
    if _host(argument) is None:
        raise BadCommand("501 5.5.4 Say EHLO with a host name or an address literal")
    return argument


def parse_mail(argument: str, *, extended: bool, most: int) -> MailCommand:
    """MAIL's argument. `extended`: the client said EHLO, so parameters may follow; `most` octets are the largest
    message."""
    found = _mail(argument)
    if found is None:
        raise BadCommand("501 5.5.4 Syntax: MAIL FROM:<address>")
    given = _parameters(found[2], extended=extended)
    smtputf8 = "SMTPUTF8" in given
    if given.pop("SMTPUTF8", None) is not None:
        raise BadCommand("501 5.5.4 SMTPUTF8 takes no value")
    sender = _path(found[1], smtputf8=smtputf8, bad="553 5.1.7")
    size = _size(given.pop("SIZE", ""), most)
    body = given.pop("BODY", "7BIT")
    if body is None or body.upper() not in ("7BIT", "8BITMIME"):
        raise BadCommand("501 5.5.4 BODY is 7BIT or 8BITMIME")
    given.pop("AUTH", None)  # RFC 4954 5: who submitted it first is nothing that we pass on
    _refuse_others(given)
    return MailCommand(sender, size, smtputf8)


def parse_rcpt(argument: str, *, smtputf8: bool, extended: bool) -> str:
    """The address in RCPT's argument, not yet looked at as an address."""
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
    if " " in address or len(address.encode()) > MAX_ADDRESS:
        raise BadCommand(f"{bad} The address holds a blank, or more than {MAX_ADDRESS} octets")
    if not address.isascii() and not smtputf8:
        raise BadCommand("553 5.6.7 An address outside ASCII needs SMTPUTF8 with MAIL")
    return address


def _parameters(text: str, *, extended: bool) -> dict[str, str | None]:
    """Parameters by name in capitals; None where one has no value."""
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


def _size(text: str | None, most: int) -> int:
    if text == "":
        return 0
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20:  # RFC 1870 4
        raise BadCommand("501 5.5.4 SIZE is a number of octets")
    size = int(text)
    if size > most:
        raise BadCommand(f"552 5.3.4 [payload_too_large] The message may have {most} octets at the most")
    return size


def _refuse_others(given: dict[str, str | None]) -> None:
    for name in given:
        raise BadCommand(f"555 5.5.4 The parameter {name[:40]} is not known here")
