"""Mail addresses as people write them, turned into the one form that the service stores and compares.

Plain ASCII addresses, nearly all of them, take a strict pattern of a few microseconds; whatever that does
not recognise goes to email-validator. No DNS is asked: "DNS is down" must not read as "invalid".
"""

import re
import unicodedata
from typing import Final

import email_validator
from email_validator import EmailNotValidError, ValidatedEmail, validate_email
from msgspec import Struct

MAX_TEXT: Final = 320  # characters, display name and brackets included
MAX_ADDRESS: Final = 254  # octets: RFC 5321 4.5.3.1.3 gives a path 256 with its angle brackets
MAX_LOCAL: Final = 64  # octets: RFC 5321 4.5.3.1.1
MAX_DOMAIN: Final = 253  # octets: RFC 1035 2.3.4 less the root label and the first length octet

# Which domains exist is for DNS to say, at delivery. Local mode and private networks live on `.test`,
# `.local` and `.localhost`; the library documents this list as open to change by its user.
email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()

_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = rf"(?:{_LABEL}\.)+[A-Za-z](?:[A-Za-z0-9-]{{0,61}}[A-Za-z])?"
_plain_address = re.compile(rf"({_ATEXT}+(?:\.{_ATEXT}+)*)@({_DOMAIN})").fullmatch
_plain_domain = re.compile(_DOMAIN).fullmatch
_quoted_name = re.compile(r'"((?:[^"\\]|\\.)*)"').fullmatch
_unquoted_specials = re.compile(r'[<>",;@\\]').search
_shown_address = re.compile(r"[^\s<>\"'(),;:@]{1,64}@((?:[^\s<>\"'(),;:@.]+\.)+[^\s<>\"'(),;:@.]+)").finditer
_FORBIDDEN: Final = {"Cc", "Cs", "Zl", "Zp"}  # controls, lone surrogates, line and paragraph separators


class BadAddress(ValueError):  # noqa: N818 - named for what the caller gave
    """The text is not one usable mail address; the sentence says what is wrong with it."""


class Mailbox(Struct, frozen=True):
    """One address with its display name.

    `name` is "" when there is none. `address` is `local@domain`: the local part as given (NFC where it is
    not ASCII, RFC 6532 3.1), the domain in lower-case A-labels.
    """

    name: str
    address: str

    @property
    def local(self) -> str:
        """What stands before the last `@`."""
        return self.address.rpartition("@")[0]

    @property
    def domain(self) -> str:
        """What stands after the last `@`: lower-case A-labels."""
        return self.address.rpartition("@")[2]

    @property
    def smtputf8(self) -> bool:
        """True when only SMTPUTF8 (RFC 6531) can carry the address: its local part is not ASCII."""
        return not self.address.isascii()


def parse_mailbox(text: str) -> Mailbox:
    """One mailbox from `a@b.example`, `Name <a@b.example>` or `"Name, quoted" <a@b.example>`.

    Raises BadAddress for anything else, several addresses and address literals included.
    """
    plain = _plain_address(text)
    if plain is not None and _fits(plain):
        return Mailbox("", f"{plain[1]}@{plain[2].lower()}")
    _check_text(text)
    text = text.strip(" ")
    if not text.endswith(">"):
        return Mailbox("", _address(text))
    name, bracket, address = text[:-1].rpartition("<")
    if not bracket:
        raise BadAddress("The address ends with > but has no <; write it as: Name <name@example.com>.")
    return Mailbox(_display_name(name.strip(" ")), _address(address.strip(" ")))


def check_sender(mailbox: Mailbox) -> None:
    """Raise BadAddress for a From mailbox whose display name shows an address of another domain."""
    shown = impersonated(mailbox)
    if shown is not None:
        raise BadAddress(
            f"The display name shows the address {shown}, which does not belong to {mailbox.domain};"
            " take it out of the name."
        )


def impersonated(mailbox: Mailbox) -> str | None:
    """Return the first address in the display name whose domain is not the mailbox's own; None when there is none.

    Mail programs show the name and hide the address, so that `"bank@example.com" <x@shop.test>` reads as mail from
    the bank. A domain above or below the mailbox's own is its own. Look-alikes of `@` and of the full stop count,
    and invisible characters do not separate.
    """
    if "@" not in mailbox.name and mailbox.name.isascii():
        return None
    plain = "".join([letter for letter in mailbox.name if unicodedata.category(letter) != "Cf"])
    plain = unicodedata.normalize("NFKC", plain).replace("\u3002", ".")
    for found in _shown_address(plain):
        domain = _comparable(found[1])
        if not _same_organisation(domain, mailbox.domain):
            return found[0]
    return None


def _comparable(domain: str) -> str:
    try:
        return domain_name(domain)
    except BadAddress:  # no usable domain, and still an address to a reader
        return domain.lower()


def _same_organisation(one: str, other: str) -> bool:
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def canonical(address: str) -> str:
    """The form under which addresses compare equal, for suppression: lower case, NFC, A-labels.

    `address` is a bare address that parsed before. Lower-casing the local part treats more people as one
    than RFC 5321 2.4 does; no mailbox provider of note tells them apart, and a suppression must hold.
    Raises BadAddress where a non-ASCII address has no usable domain.
    """
    if address.isascii():
        return address.lower()
    local, _, domain = address.rpartition("@")
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", local).lower())
    return f"{lowered}@{domain_name(domain)}"


def domain_name(text: str) -> str:
    """A domain in lower-case A-labels (IDNA 2008 after UTS 46 mapping); raises BadAddress."""
    if _plain_domain(text) is not None and "--" not in text and len(text) <= MAX_DOMAIN:
        return text.lower()
    if "@" in text:
        raise BadAddress("A domain name has no @-sign.")
    _check_text(text)
    return str(_validated(f"a@{text}").ascii_domain)


def _fits(plain: re.Match[str]) -> bool:
    """True when a plain address is surely right; `--` may be an A-label, which needs a real look."""
    local, domain = plain[1], plain[2]
    return (
        len(local) <= MAX_LOCAL
        and len(domain) <= MAX_DOMAIN
        and len(local) + len(domain) < MAX_ADDRESS
        and "--" not in domain
    )


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise BadAddress(f"The address is longer than {MAX_TEXT} characters.")
    if text.isprintable():  # the usual case; false for other spaces and formats, which may be fine
        return
    for letter in text:
        if unicodedata.category(letter) in _FORBIDDEN:
            raise BadAddress(f"The address holds a control character (U+{ord(letter):04X}).")


def _address(text: str) -> str:
    plain = _plain_address(text)
    if plain is not None and _fits(plain):
        return f"{plain[1]}@{plain[2].lower()}"
    found = _validated(text)
    local = unicodedata.normalize("NFC", text.rpartition("@")[0])
    if len(local.encode()) > MAX_LOCAL:
        raise BadAddress(f"The part before the @-sign is longer than {MAX_LOCAL} octets.")
    return f"{local}@{found.ascii_domain}"


def _validated(address: str) -> ValidatedEmail:
    if "," in address or ";" in address:
        raise BadAddress("Give one address at a time, without a comma or semicolon.")
    try:
        return validate_email(
            address, check_deliverability=False, allow_smtputf8=True, allow_quoted_local=False,
            allow_domain_literal=False, allow_display_name=False,
        )  # fmt: skip
    except EmailNotValidError as error:
        raise BadAddress(str(error)) from error


def _display_name(text: str) -> str:
    """The name's own characters, without quotes and escapes."""
    quoted = _quoted_name(text)
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted[1]).strip(" ")
    special = _unquoted_specials(text)
    if special is not None:
        raise BadAddress(
            f"The name before the address holds {special[0]}; put the name in double quotes,"
            ' as in: "Name" <name@example.com>.'
        )
    return text
