"""Check the billing profile: name, address and tax id of the buyer on invoices. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from engine.accounts.billing.rows import BillingProfileRow
from engine.accounts.billing.tax import EU, is_country, is_vat_id, tidy_tax_id
from engine.base.errors import invalid
from engine.mail.address import BadAddress, bare_address

MAX_NAME: Final = 200
MAX_ADDRESS: Final = 500
MAX_TAX_ID: Final = 40
MAX_EMAIL: Final = 320
_WIRE: Final = {"legal_name": "legalName", "tax_id": "taxId"}


def checked(profile: BillingProfileRow) -> BillingProfileRow:
    """Return the profile in the form in which it is stored; raise the 400 that names the wrong field."""
    country = profile.country.strip().upper()
    if not is_country(country):
        raise invalid(
            "profile.country",
            f"`{profile.country[:20]}` isn't an ISO 3166 country code. Use one such as DE or GB.",
        )
    return BillingProfileRow(
        legal_name=_text("legalName", profile.legal_name, MAX_NAME) or _missing_name(),
        country=country,
        address=_text("address", profile.address, MAX_ADDRESS, lines=True),
        tax_id=_tax_id(country, profile.tax_id),
        email=_email(profile.email),
    )


def merged(stored: BillingProfileRow | None, changed: dict[str, str | None]) -> BillingProfileRow:
    """Return the stored profile with the changed fields, checked; a first profile needs name and country."""
    base = stored or BillingProfileRow("", "", None, None, None)
    for name in ("legal_name", "country"):
        if changed.get(name, getattr(base, name)) in (None, ""):
            raise invalid(f"profile.{_WIRE.get(name, name)}", f"`{_WIRE.get(name, name)}` is required on invoices.")
    return checked(structs.replace(base, **changed))


def wire_names(names: Sequence[str]) -> list[str]:
    """Return the names of fields as the API writes them."""
    return [_WIRE.get(name, name) for name in names]


def _missing_name() -> str:
    raise invalid("profile.legalName", "`legalName` is empty. Give the name to print on invoices.")


def _text(field: str, text: str | None, longest: int, *, lines: bool = False) -> str | None:
    if text is None:
        return None
    kept = text.strip()
    if len(kept) > longest:
        raise invalid(f"profile.{field}", f"`{field}` has {len(kept)} characters; the limit is {longest}. Shorten it.")
    controls = [letter for letter in kept if not letter.isprintable() and not (lines and letter == "\n")]
    if controls:
        raise invalid(
            f"profile.{field}", f"`{field}` contains the control character U+{ord(controls[0]):04X}. Remove it."
        )
    return kept or None


def _tax_id(country: str, text: str | None) -> str | None:
    given = _text("taxId", text, MAX_TAX_ID)
    if given is None:
        return None
    tidy = tidy_tax_id(given)
    if country in EU and not is_vat_id(country, tidy):
        raise invalid("profile.taxId", f"`{given}` isn't a valid VAT id of {country}. Correct it, or leave it out.")
    return tidy if country in EU else given


def _email(text: str | None) -> str | None:
    given = _text("email", text, MAX_EMAIL)
    if given is None:
        return None
    try:
        bare_address(given)
    except BadAddress as error:
        raise invalid("profile.email", f"`{given}` is not an email address: {error}") from None
    return given
