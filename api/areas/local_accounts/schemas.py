"""Requests and replies about accounts of local mode."""

from typing import Annotated

from msgspec import Meta, Struct


class NewLocalAccount(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """An account to open."""

    name: Annotated[str, Meta(min_length=1, max_length=80, description="For people who look at it later")] = "Test"


class LocalAccountOpened(Struct, rename="camel"):
    """A new account. Its owner has a password that nobody knows; `ops person sign-in-link` signs them in."""

    account_id: str
    api_key: Annotated[str, Meta(description="A key with all scopes")]
    domain: Annotated[str, Meta(description="A verified domain to send from")]
    owner_email: str
