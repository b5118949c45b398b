"""Requests and replies of the contact form."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.accounts.leads.service import MAX_COMPANY, MAX_MESSAGE, MAX_NAME
from engine.people.people.rules import MAX_EMAIL


class NewLead(Struct, forbid_unknown_fields=True, kw_only=True):
    """An enquiry from the contact form, for `POST /v1/leads`."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)] | None = None
    email: Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL)]
    company: Annotated[str, Meta(min_length=1, max_length=MAX_COMPANY)] | None = None
    message: Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE)]


class Lead(Struct):
    """An enquiry that was stored."""

    id: str
