"""Wire shapes of enquiries."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.areas.people.rules import MAX_EMAIL
from engine.flows.accounts.leads import MAX_COMPANY, MAX_MESSAGE, MAX_NAME


class NewLead(Struct, forbid_unknown_fields=True, kw_only=True):
    """`POST /v1/leads`: what a visitor has written into the contact form."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)] | None = None
    email: Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL)]
    company: Annotated[str, Meta(min_length=1, max_length=MAX_COMPANY)] | None = None
    message: Annotated[str, Meta(min_length=1, max_length=MAX_MESSAGE)]


class Lead(Struct):
    """An enquiry that was taken."""

    id: str
