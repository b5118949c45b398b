"""Requests and replies of API keys. Only the reply that creates a key contains its secret."""

from typing import Annotated

from msgspec import Meta, Struct

from api.http.paging import PageQuery
from engine.people.api_keys.agent_policy import MAX_RECIPIENT, MAX_RECIPIENTS, Approval
from engine.people.api_keys.rules import (
    DEFAULT_OVERLAP_HOURS,
    MAX_NAME,
    MAX_NAMED,
    MAX_ORIGIN,
    MAX_ORIGINS,
    MAX_OVERLAP_HOURS,
)

SubAccount = Annotated[
    str, Meta(max_length=100, description="Lists the keys of this sub-account, for admins of its parent")
]


class KeysQuery(PageQuery, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The query of `GET /v1/api-keys`: newest first, revoked keys included."""

    sub_account_id: SubAccount | None = None


class AgentRules(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Limit what an agent sends with a key, by HTTP and SMTP alike. Such a key reads, and sends at most.

    Without `recipients` it sends to anybody, but over MCP only what it has shown in a dry run.
    """

    recipients: Annotated[
        Annotated[
            list[Annotated[str, Meta(min_length=3, max_length=MAX_RECIPIENT)]],
            Meta(min_length=1, max_length=MAX_RECIPIENTS),
        ]
        | None,
        Meta(
            description="The only recipients: addresses, and domains with an @-sign",
            examples=[["@example.com", "ann@example.org"]],
        ),
    ] = None
    approval: Annotated[
        Approval,
        Meta(description="`required`: the key sends by `POST /v1/agent-sends` alone, and a person approves each email"),
    ] = "none"


class NewKey(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A new API key.

    `expiresAt`: ISO 8601, the time from which the key is invalid. `subAccountId`: the sub-account that gets the key.
    `domains`, `streams`: the account's domains and streams that the key may send from and on, and whose objects it sees
    and changes; `networks`: the networks that it may be used from, in CIDR notation. An omitted list does not limit the
    key. `allowedOrigins`: the origins of web pages that may read with this key; without it, browsers keep its answers
    from pages of other origins.
    """

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    scopes: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(min_length=1, max_length=100)]
    expires_at: Annotated[str, Meta(max_length=64)] | None = None
    sub_account_id: Annotated[str, Meta(max_length=100)] | None = None
    domains: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=253)]], Meta(min_length=1, max_length=MAX_NAMED)]
        | None
    ) = None
    streams: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(min_length=1, max_length=MAX_NAMED)]
        | None
    ) = None
    networks: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(min_length=1, max_length=MAX_NAMED)]
        | None
    ) = None
    allowed_origins: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=MAX_ORIGIN)]],
            Meta(
                min_length=1,
                max_length=MAX_ORIGINS,
                description="For keys with read scopes alone: `https://app.example.com`, or `http://localhost:3000`",
                examples=[["https://app.example.com"]],
            ),
        ]
        | None
    ) = None
    agent: AgentRules | None = None


class ApiKey(Struct, rename="camel", kw_only=True):
    """An API key as the list shows it. `hint` is the beginning of the key, which is useless as a credential.

    `lastUsedAt` is null for a key never used, and up to half a minute old. A key with `revokedAt` no longer
    authenticates; its record stays. `domains`, `streams` and `networks` are null for a key without such a limit.
    """

    id: str
    name: str
    scopes: list[str]
    hint: str
    created_at: str
    last_used_at: str | None
    revoked_at: str | None
    expires_at: str | None
    domains: list[str] | None
    streams: list[str] | None
    networks: list[str] | None
    allowed_origins: Annotated[
        list[str] | None,
        Meta(
            description="The origins of web pages that may read with this key, null for none",
            examples=[["https://app.example.com"]],
        ),
    ]
    agent: AgentRules | None
    replaced_by: Annotated[str | None, Meta(description="The key that a rotation made of this one")]


class KeyChange(Struct, forbid_unknown_fields=True):
    """The changes of an API key: its name."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class KeyRotation(Struct, rename="camel", forbid_unknown_fields=True):
    """How to rotate an API key; the body may be left out."""

    overlap_hours: Annotated[
        int, Meta(ge=0, le=MAX_OVERLAP_HOURS, description="For so long the old key stays valid beside the new one")
    ] = DEFAULT_OVERLAP_HOURS


class MadeKey(ApiKey, rename="camel", kw_only=True):
    """A new API key. `token` is the bearer token; it is never shown again."""

    token: str


class RotatedKey(MadeKey, rename="camel", kw_only=True):
    """The new key of a rotation, and the key that it replaces, whose `expiresAt` ends the overlap."""

    replaces: ApiKey


class ApiKeyPage(Struct, rename="camel"):
    """Keys, newest first. `nextCursor` is null on the last page."""

    data: list[ApiKey]
    next_cursor: str | None
