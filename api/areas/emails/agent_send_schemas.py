"""Requests and replies of the sends of agents."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.areas.emails.schemas import DryRunReply, ForeseenMessage
from api.http.paging import PageQuery
from engine.sending.agent_sends.rules import MAX_TOKEN
from engine.sending.agent_sends.types import AgentSendState
from engine.sending.emails.types import SendRequest

Sending = Literal["at_once", "confirm", "approval", "forbidden"]


class AgentAccess(Struct, rename="camel", kw_only=True):
    """Tell what an agent may do with an API key. `recipients`: the only ones, null for any."""

    scopes: list[str]
    recipients: list[str] | None
    sending: Annotated[
        Sending,
        Meta(description="Whether a send goes out at once, with the token of a dry run, or after a person's approval"),
    ]


class AgentSendRequest(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """An email of an agent, in the form of `POST /v1/emails`."""

    email: SendRequest
    dry_run: Annotated[bool, Meta(description="True: show what would be sent, with the token that sends it")] = False
    token: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN)] | None,
        Meta(description="The `token` of a dry run of this email"),
    ] = None


class AgentSendReply(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The result: a `preview` with its `token`, the message that was `sent`, or a send that is `pending` approval.

    `expiresAt` ends the token, or the time to decide. `duplicate`: this send went out before.
    """

    state: Literal["preview", "sent", "pending"]
    token: str | UnsetType = UNSET
    preview: DryRunReply | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    duplicate: bool = False
    id: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET


class AgentSendsQuery(PageQuery, kw_only=True, forbid_unknown_fields=True):
    """The query of `GET /v1/agent-sends`: newest first."""

    state: Annotated[AgentSendState | None, Meta(description="Default: all")] = None


class AgentSend(Struct, rename="camel", kw_only=True):
    """A send that a person decides on.

    `approved`: its sending was interrupted. Until `expiresAt`, approving it again sends it, once.
    """

    id: str
    state: AgentSendState
    key_id: Annotated[str, Meta(description="The API key that asked")]
    agent: Annotated[str | None, Meta(description="The program that called over MCP, null without one")]
    from_: str
    recipients: list[str]
    subject: str
    message_id: Annotated[str | None, Meta(description="The message, once it was sent")]
    decided_by: Annotated[str | None, Meta(description="The person who approved or declined it")]
    created_at: str
    expires_at: Annotated[str, Meta(description="Until then a person can decide")]
    decided_at: str | None


class AgentSendDetail(AgentSend, rename="camel", kw_only=True):
    """A send with the message as it would go out now, or the `error` that it would get."""

    message: ForeseenMessage | None = None
    error: dict[str, Any] | None = None


class AgentSendPage(Struct, rename="camel"):
    """Sends, newest first. `nextCursor` is null on the last page."""

    data: list[AgentSend]
    next_cursor: str | None
