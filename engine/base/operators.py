"""The operators of the installation: people who may see and change all of it over the API."""

from engine.base.settings import Settings

FIRST_OWNER = "owner@hello.test"  # owner of the account that the first start in local mode creates


def is_operator(settings: Settings, email: str, *, is_verified: bool, is_confirmed: bool) -> bool:
    """Return True if the setting names this verified address, and `ops person operator` has confirmed its person.

    An address alone proves nothing: anybody can sign up with it, and its owner may open the link in the mail.
    """
    return is_verified and is_confirmed and email.lower() in operators(settings)


def operators(settings: Settings) -> frozenset[str]:
    """Return the operators' addresses, in lower case."""
    named = settings.operators
    if not named and settings.delivery == "local":
        named = (FIRST_OWNER,)
    return frozenset(one.lower() for one in named)
