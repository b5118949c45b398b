"""Parse email addresses and normalise them to the form that the service stores and compares.

A strict pattern accepts plain ASCII addresses, nearly all of them, within microseconds; email-validator parses the
rest. No DNS query is made: a DNS failure must not make an address invalid. Used by the API, the SMTP relay and
suppressions.
"""

import re
import unicodedata
from typing import Final

import email_validator
import idna
from email_validator import EmailNotValidError, ValidatedEmail, validate_email
from msgspec import Struct

from engine.mail.encoded_words import words

MAX_TEXT: Final = 320  # characters, display name and brackets included
MAX_ADDRESS: Final = 254  # octets: RFC 5321 4.5.3.1.3 gives a path 256 with its angle brackets
MAX_LOCAL: Final = 64  # octets: RFC 5321 4.5.3.1.1
MAX_DOMAIN: Final = 253  # octets: RFC 1035 2.3.4 less the root label and the first length octet

# DNS decides at delivery which domains exist. Local mode and private networks use `.test`, `.local` and
# `.localhost`; the library documents that its users may change this list.
email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()

_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = rf"(?:{_LABEL}\.)+[A-Za-z](?:[A-Za-z0-9-]{{0,61}}[A-Za-z])?"
_plain_address = re.compile(rf"({_ATEXT}+(?:\.{_ATEXT}+)*)@({_DOMAIN})").fullmatch
_plain_domain = re.compile(_DOMAIN).fullmatch
_quoted_name = re.compile(r'"((?:[^"\\]|\\.)*)"').fullmatch
_unquoted_specials = re.compile(r'[<>",;@\\]').search
_shown_address = re.compile(r"[^\s<>\"'(),;:@]{1,64}@((?:[^\s<>\"'(),;:@.]+\.)+[^\s<>\"'(),;:@.]+)").finditer
# Default_Ignorable_Code_Point (Unicode 15.1, DerivedCoreProperties.txt): programs show nothing for them.
_ignorable = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
).sub
_FORBIDDEN: Final = {"Cc", "Cs", "Zl", "Zp"}  # controls, lone surrogates, line and paragraph separators


class BadAddress(ValueError):  # noqa: N818 - named for what the caller gave
    """The text is not a valid email address; the message says what is wrong."""


class Mailbox(Struct, frozen=True):
    """An address with its display name.

    `name` is "" if there is none. `address` is `local@domain`: the local part as given (NFC if it is not ASCII, RFC
    6532 3.1), the domain in lower-case A-labels.
    """

    name: str
    address: str

    @property
    def local(self) -> str:
        """Return the local part: everything before the last `@`."""
        return self.address.rpartition("@")[0]

    @property
    def domain(self) -> str:
        """Return the domain, everything after the last `@`, in lower-case A-labels."""
        return self.address.rpartition("@")[2]

    @property
    def smtputf8(self) -> bool:
        """Return True if the address needs SMTPUTF8 (RFC 6531), because its local part is not ASCII."""
        return not self.address.isascii()


def parse_mailbox(text: str) -> Mailbox:
    """Parse one mailbox: `a@b.example`, `Name <a@b.example>` or `"Name, quoted" <a@b.example>`.

    Raises BadAddress for anything else, including several addresses and address literals.
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
        raise BadAddress("The address ends with > but has no <. Write it as: Name <name@example.com>.")
    return Mailbox(_display_name(name.strip(" ")), _address(address.strip(" ")))


def bare_address(text: str) -> str:
    """Parse `local@domain`, without a name and brackets; raise BadAddress for anything else."""
    mailbox = parse_mailbox(text)
    if mailbox.name or "<" in text:
        raise BadAddress("Give the address without a name, such as ann@example.com.")
    return mailbox.address


def path_mailbox(text: str) -> Mailbox:
    """Parse the address of an SMTP path, which may have a quoted local part (RFC 5321 4.1.2); raise BadAddress.

    Quotes that the local part does not need are removed.
    """
    if not text.startswith('"'):
        return parse_mailbox(text)
    _check_text(text)
    found = _validated(text, quoted=True)
    if len(found.local_part.encode()) > MAX_LOCAL:
        raise BadAddress(f"The part before the @-sign is longer than {MAX_LOCAL} octets.")
    return Mailbox("", f"{found.local_part}@{found.ascii_domain}")


def check_sender(mailbox: Mailbox) -> None:
    """Raise BadAddress for a From mailbox whose display name contains an address of another domain, or an encoded word.

    A word within the name would be encoded once more; some programs decode twice and show what it holds.
    """
    if next(words(mailbox.name), None) is not None:
        raise BadAddress("The display name contains an encoded word (=?…?=); write its characters as they are.")
    shown = impersonated(mailbox)
    if shown is not None:
        raise BadAddress(
            f"The display name contains the address {shown}, which does not belong to {mailbox.domain};"
            " remove it from the name."
        )


def impersonated(mailbox: Mailbox) -> str | None:
    """Return the first address in the display name that has a foreign domain, or None.

    Many mail clients show only the name, so `"bank@example.com" <x@shop.test>` looks like mail from the bank. A parent
    or subdomain of the mailbox's domain is not foreign. Look-alikes of `@` and of the full stop count as such;
    invisible characters are ignored.
    """
    if "@" not in mailbox.name and mailbox.name.isascii():
        return None
    plain = unicodedata.normalize("NFKC", _visible(mailbox.name)).replace("\u3002", ".")
    for found in _shown_address(plain):
        domain = _comparable(found[1])
        if not same_organisation(domain, mailbox.domain):
            return found[0]
    return None


def _comparable(domain: str) -> str:
    try:
        return domain_name(domain)
    except BadAddress:  # an invalid domain still looks like an address to a reader
        return domain.lower()


def same_organisation(one: str, other: str) -> bool:
    """Return True if one domain is the other, or is below it."""
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def canonical(address: str) -> str:
    """Return the form in which addresses are compared for suppression: lower case, UTS 46 mapping, A-labels.

    `address` is a bare address that `parse_mailbox` has accepted. RFC 5321 2.4 allows case-sensitive local parts, but
    no large mailbox provider has them, and a suppression must not depend on case, on full-width letters or on
    characters that no one sees. Raises BadAddress if a non-ASCII address has an invalid domain.
    """
    if address.isascii():
        return address.lower()
    local, _, domain = address.rpartition("@")
    return f"{_comparable_local(local)}@{domain_name(domain)}"


def _comparable_local(local: str) -> str:
    """Return a local part mapped as UTS 46 maps labels; one with characters that no label has is mapped alike."""
    mapped = _mapped(local)
    if mapped is None:
        mapped = unicodedata.normalize("NFKC", _visible(unicodedata.normalize("NFKC", local)).lower())
    return mapped or unicodedata.normalize("NFC", local)


def _visible(text: str) -> str:
    """Return a text without format characters and those that are ignored where they can't be shown."""
    return "".join([letter for letter in _ignorable("", text) if unicodedata.category(letter) != "Cf"])


def domain_name(text: str) -> str:
    """Return a domain in lower-case A-labels (IDNA 2008 after UTS 46 mapping). Raises BadAddress."""
    if _plain_domain(text) is not None and "--" not in text and len(text) <= MAX_DOMAIN:
        return text.lower()
    if "@" in text:
        raise BadAddress("A domain name has no @-sign.")
    _check_text(text)
    return str(_validated(f"a@{text}").ascii_domain)


def unmapped_domain(domain: str) -> str:
    """Return a domain as a header may have it; raise BadAddress for one that is valid only after IDNA mapping (UTS 46).

    Other software maps such a domain differently, or not at all. Upper case alone is read alike everywhere.
    """
    if not domain.isascii():
        lowered = domain.lower()
        if unicodedata.normalize("NFC", domain) != domain or _mapped(lowered) != lowered:
            raise BadAddress(f"The domain {domain} is written with characters that programs read differently.")
    return domain


def _mapped(text: str) -> str | None:
    """Return a text after the mapping of UTS 46 (4, step 1 and 2); None if a character is not allowed."""
    try:
        return idna.uts46_remap(text, std3_rules=False)
    except idna.IDNAError:
        return None


def _fits(plain: re.Match[str]) -> bool:
    """Return True if an address that matched the pattern is valid; one with `--` may hold an A-label and needs a full
    check.
    """
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
    if text.isprintable():  # the usual case; False for other spaces and format characters, which are allowed
        return
    for letter in text:
        if unicodedata.category(letter) in _FORBIDDEN:
            raise BadAddress(f"The address contains a control character (U+{ord(letter):04X}).")


def _address(text: str) -> str:
    plain = _plain_address(text)
    if plain is not None and _fits(plain):
        return f"{plain[1]}@{plain[2].lower()}"
    found = _validated(text)
    local = unicodedata.normalize("NFC", text.rpartition("@")[0])
    if len(local.encode()) > MAX_LOCAL:
        raise BadAddress(f"The part before the @-sign is longer than {MAX_LOCAL} octets.")
    return f"{local}@{found.ascii_domain}"


def _validated(address: str, *, quoted: bool = False) -> ValidatedEmail:
    if not quoted and ("," in address or ";" in address):
        raise BadAddress("Give one address at a time, without a comma or semicolon.")
    try:
        return validate_email(
            address, check_deliverability=False, allow_smtputf8=True, allow_quoted_local=quoted,
            allow_domain_literal=False, allow_display_name=False,
        )  # fmt: skip
    except EmailNotValidError as error:
        raise BadAddress(str(error)) from error


def _display_name(text: str) -> str:
    """Return the display name without quotes and escapes."""
    quoted = _quoted_name(text)
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted[1]).strip(" ")
    special = _unquoted_specials(text)
    if special is not None:
        raise BadAddress(
            f'The name before the address contains {special[0]}; put the name in double quotes, as in: "Name" '
            "<name@example.com>."
        )
    return text
