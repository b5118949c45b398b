"""Ids in paths and cursors, as the dispatcher reads them for `Operation.id_of`, `Operation.inner_id_of` and pages."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.base import ids
from engine.base.errors import invalid, not_found
from engine.base.ids import Kind

# The noun of the 404 by the kind of the id.
NOUNS: Final = {
    Kind.ACCOUNT: "account",
    Kind.ALERT_RULE: "alert rule",
    Kind.API_KEY: "API key",
    Kind.ATTACHMENT: "attachment",
    Kind.BROADCAST: "broadcast",
    Kind.CONTACT: "contact",
    Kind.DOMAIN: "domain",
    Kind.ERASURE: "erasure",
    Kind.EVENT: "webhook delivery",
    Kind.IDENTITY: "identity",
    Kind.IMAGE: "image",
    Kind.INBOUND_ADDRESS: "inbound address",
    Kind.INBOUND_ROUTE: "inbound route",
    Kind.INVITE: "invitation",
    Kind.INVOICE: "invoice",
    Kind.LIST: "list",
    Kind.MESSAGE: "message",
    Kind.PASSKEY: "passkey",
    Kind.RECEIVED: "received message",
    Kind.SEGMENT: "segment",
    Kind.SESSION: "session",
    Kind.USER: "member",
    Kind.VERIFICATION: "verification",
    Kind.VIEW: "saved view",
    Kind.AGENT_SEND: "agent send",
    Kind.WEBHOOK: "webhook endpoint",
}


class PathId(Struct, frozen=True):
    """An id in the path of an operation."""

    name: str  # of the parameter
    kind: Kind
    noun: str = ""  # of the object, if it is not the kind's own

    def read(self, path: Mapping[str, str]) -> UUID:
        """Return the id in the parameters of a path; a malformed id, or one of another kind, is a 404."""
        return path_id(self.kind, path[self.name], self.noun)


def path_id(kind: Kind, text: str, noun: str = "") -> UUID:
    """Return the id in a path parameter; a malformed id, or one of another kind, is a 404 like an unknown one."""
    try:
        return ids.parse_id(kind, text)
    except ids.WrongId:
        raise not_found(noun or NOUNS[kind]) from None


def cursor_id(kind: Kind, text: str | None, field: str = "before") -> UUID | None:
    """Return the id in a cursor; raises 400 for one of another kind."""
    if text is None:
        return None
    try:
        return ids.parse_id(kind, text)
    except ids.WrongId as error:
        raise invalid(field, f"`{field}` must be the `nextCursor` of an earlier page: {error}.") from None
