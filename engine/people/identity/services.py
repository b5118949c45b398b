"""Protocol of the services that signing in with an identity provider needs from a process."""

from typing import Protocol

from engine.people.identity.provider import IdentityProvider
from engine.people.services import PeopleServices


class IdentityServices(PeopleServices, Protocol):
    """The services of people with the identity provider, None if none is configured."""

    provider: IdentityProvider | None
