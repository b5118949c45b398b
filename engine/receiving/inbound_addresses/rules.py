"""Check inbound addresses and their labels, and name the managed receiving domain of an account. Pure."""

from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.text import is_line
from engine.mail.address import BadAddress, bare_address

MAX_LABEL = 120
CATCH_ALL = "*"  # the local part that claims every address of the domain that nobody claimed


def checked_address(text: str) -> str:
    """Return the address as it is claimed, its domain in lower-case A-labels; raise the 422 `invalid_address`."""
    try:
        return bare_address(text)
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`address` is not an email address: {error}", address=text, field="address"
        ) from None


def checked_label(label: str | None) -> str | None:
    """Return the label without surrounding blanks, None for an empty one; raise the 400 for an unusable one."""
    line = (label or "").strip()
    if len(line) > MAX_LABEL:
        raise invalid("label", f"`label` has {len(line)} characters; the limit is {MAX_LABEL}. Shorten it.")
    if not is_line(line):
        raise invalid("label", "`label` must be one line without control characters.")
    return line or None


def receiving_zone(mail_host: str) -> str:
    """Return the domain above all managed receiving domains."""
    return f"in.{mail_host.lower()}"


def managed_domain(label: str, mail_host: str) -> str:
    """Return the managed receiving domain with this label."""
    return f"{label}.{receiving_zone(mail_host)}"


def managed_label(domain: str, mail_host: str) -> str | None:
    """Return the label of a managed receiving domain; None for any other domain."""
    label, _, zone = domain.partition(".")
    return label if zone == receiving_zone(mail_host) else None


def catch_all(domain: str) -> str:
    """Return the address that claims every address of the domain that nobody claimed."""
    return f"{CATCH_ALL}@{domain}"


def may_not_reach(domain: str) -> Refusal:
    """Return the 403 for a key that is limited to other domains."""
    return Refusal(
        ErrorType.FORBIDDEN,
        f"This API key isn't allowed to manage addresses of {domain}. Use a key that allows this domain.",
    )


def not_verified(domain: str) -> Refusal:
    """Return the 403 for an address under a domain that this account has not verified."""
    return Refusal(
        ErrorType.DOMAIN_NOT_VERIFIED,
        f"{domain} isn't a verified domain of your account. Add or verify it, then claim the address.",
        domain=domain,
    )
