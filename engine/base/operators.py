"""The operators of the installation: people who may see and change all of it over the API."""

from engine.base.settings import Settings

FIRST_OWNER = "owner@hello.test"  # owner of the account that the first start in local mode creates


def is_operator(settings: Settings, email: str, *, is_verified: bool) -> bool:
    """Return True if the person with this address is an operator: the setting names it, and it is verified.

    An unverified address proves nothing: anybody can sign up with it.
    """
    return is_verified and email.lower() in operators(settings)


def operators(settings: Settings) -> frozenset[str]:
    """Return the operators' addresses, in lower case."""
    named = settings.operators
    if not named and settings.delivery == "local":
        named = (FIRST_OWNER,)
    return frozenset(one.lower() for one in named)
