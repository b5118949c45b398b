"""Find the authenticated author of a report mail, which decides whether some reports count. Pure."""

from engine.authentication.author import NoAuthorDomain, author
from engine.authentication.canonicalization import CanonicalHeader, HeaderTooLarge, head_and_body
from engine.authentication.dmarc import is_within
from engine.authentication.results import AuthenticationVerdict, AuthenticationVerdicts
from engine.mail.address import canonical
from engine.receiving.reports.types import Reporter


def authenticated_author(message: bytes, verdicts: AuthenticationVerdicts) -> Reporter | None:
    """Return the author if SPF or DKIM passed for the domain of From or one above it; None otherwise.

    A domain below that of From does not align here, though DMARC may accept it: below some domains anybody can have
    one.
    """
    try:
        found = author(CanonicalHeader(head_and_body(message)[0]))
    except HeaderTooLarge:
        return None
    if isinstance(found, NoAuthorDomain):
        return None
    signed = _passed(verdicts.dkim, found.domain)
    if signed is None and _passed(verdicts.spf, found.domain) is None:
        return None
    return Reporter(canonical(found.address), signed)


def _passed(verdict: AuthenticationVerdict, domain: str) -> str | None:
    """Return the domain that passed, if it is `domain` or above it."""
    aligned = verdict.result == "pass" and verdict.domain is not None and is_within(domain, verdict.domain)
    return verdict.domain if aligned else None
