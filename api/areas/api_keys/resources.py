"""`/v1/api-keys`: the keys of an account. Only signed-in persons create and revoke keys."""

from typing import Any, cast

from api.areas.api_keys.schemas import (
    AgentRules,
    ApiKey,
    ApiKeyPage,
    KeyChange,
    KeyRotation,
    KeysQuery,
    MadeKey,
    NewKey,
    RotatedKey,
)
from api.http import auth
from api.http.operation import Access, Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.roles import Role
from engine.people.account.store import AccountRow
from engine.people.api_keys import changes as key_changes
from engine.people.api_keys import rules, store
from engine.people.api_keys import service as giving
from engine.people.api_keys.agent_policy import AgentPolicy, Approval
from engine.people.api_keys.service import KeyLimits
from engine.people.sessions.session_auth import Person


async def list_keys(call: Call, query: KeysQuery, page: Page) -> ApiKeyPage:
    """Return a page of the account's keys, including revoked ones."""
    account = call.account_id
    if query.sub_account_id is not None:
        account = (await _sub_account(call, query.sub_account_id)).id
    rows = await store.LIST.fetch(call.services.pool, account, page.before, page.probe)
    return ApiKeyPage(*page.of(rows, lambda row: ApiKey(**_fields(row))))


async def make_key(call: Call, body: NewKey) -> MadeKey:
    """Create a key; only this reply contains its token."""
    person = call.person
    _check_confirmed(person)
    expires_at = rules.checked_expiry(body.expires_at, clock.now())
    account = person.account_id
    if body.sub_account_id is not None:
        child = await _sub_account(call, body.sub_account_id)
        if child.status == "closing":
            raise Refusal(
                ErrorType.INVALID_STATE, "This sub-account is being erased and can't get new keys.", state=child.status
            )
        account = child.id
    made = await giving.create_api_key(
        call.services.pool,
        account,
        name=body.name,
        scopes=body.scopes,
        pepper=call.settings.pepper,
        expires_at=expires_at,
        limits=KeyLimits(body.domains, body.streams, body.networks, body.allowed_origins, _policy(body.agent)),
        actor=call.actor,
        notify=person.account_id,
    )
    return MadeKey(token=made.token, **_fields(made.row))


async def revoke_key(call: Call) -> None:
    """Revoke a key for good; every process refuses it within a second. Revoking it again changes nothing."""
    await giving.revoke_key(call.services.pool, call.account_id, call.id, actor=call.actor)


async def rename_key(call: Call, body: KeyChange) -> ApiKey:
    """Give a key another name."""
    row = await key_changes.rename_key(call.services.pool, call.account_id, call.id, body.name, actor=call.actor)
    return ApiKey(**_fields(row))


async def rotate_key(call: Call, body: KeyRotation) -> RotatedKey:
    """Create the successor of a key; only this reply contains its token."""
    _check_confirmed(call.person)
    rotated = await key_changes.rotate_key(
        call.services.pool,
        call.account_id,
        call.id,
        overlap_hours=body.overlap_hours,
        pepper=call.settings.pepper,
        actor=call.actor,
    )
    return RotatedKey(token=rotated.new.token, replaces=ApiKey(**_fields(rotated.old)), **_fields(rotated.new.row))


def _policy(agent: AgentRules | None) -> AgentPolicy | None:
    return None if agent is None else AgentPolicy(recipients=agent.recipients, approval=agent.approval)


def _check_confirmed(person: Person) -> None:
    if not person.row.email_verified:
        raise Refusal(
            ErrorType.EMAIL_UNVERIFIED,
            "Confirm your email address first, with the link we sent you. POST /v1/auth/verify-email/send sends "
            "another.",
        )


async def _sub_account(call: Call, text: str) -> AccountRow:
    try:
        wanted = ids.parse_id(ids.Kind.ACCOUNT, text)
    except ids.WrongId as error:
        raise invalid("subAccountId", f"`subAccountId` is not the id of an account: {error}.") from None
    if call.signed_in is None:
        raise Refusal(ErrorType.FORBIDDEN, "An API key reads its own account only: leave `subAccountId` out.")
    auth.check_role(call.signed_in, Role.ADMIN)  # sub-accounts themselves require it too
    return await giving.sub_account(call.services.pool, call.account_id, wanted)


def _fields(row: store.KeyListRow) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.Kind.API_KEY, row.id),
        "name": row.name,
        "scopes": row.scopes,
        "hint": rules.hint(row.key_id),
        "created_at": clock.iso(row.created_at),
        "last_used_at": clock.iso_or_none(row.last_used_at),
        "revoked_at": clock.iso_or_none(row.revoked_at),
        "expires_at": clock.iso_or_none(row.expires_at),
        "domains": row.domains,
        "streams": row.streams,
        "networks": row.networks,
        "allowed_origins": row.allowed_origins,
        "agent": None
        if row.agent_approval is None
        else AgentRules(recipients=row.agent_recipients, approval=cast("Approval", row.agent_approval)),
        "replaced_by": None if row.replaced_by is None else ids.format_id(ids.Kind.API_KEY, row.replaced_by),
    }


_KEYS = Area("API keys", reads=("account:read",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
_ADMINS = Area("API keys", access=Access.SESSION, role=Role.ADMIN, id_of=ids.Kind.API_KEY)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/api-keys",
        list_keys,
        "List API keys",
        _KEYS,
        page=ids.Kind.API_KEY,
        refusals=(ErrorType.NOT_FOUND,),
        lagging=True,
    ),
    Operation(
        "POST",
        "/v1/api-keys",
        make_key,
        "Create an API key; its token is shown only once",
        _ADMINS,
        success=201,
        refusals=(
            ErrorType.EMAIL_UNVERIFIED,
            ErrorType.PLAN_LIMIT_REACHED,
            ErrorType.NOT_FOUND,
            ErrorType.INVALID_STATE,
        ),
    ),
    Operation("PATCH", "/v1/api-keys/{id}", rename_key, "Rename an API key", _ADMINS),
    Operation(
        "POST",
        "/v1/api-keys/{id}/rotate",
        rotate_key,
        "Replace an API key by a new one, with an overlap; the new token is shown only once",
        _ADMINS,
        note="The new key has the name, scopes, limits and expiry of the old one, which stays valid for `overlapHours` "
        "and then expires; it can be revoked before. At the plan's number of keys a rotation is still possible: so a "
        "key has one successor, and that is rotated only after the old key has ended (409 `invalid_state`).",
        success=201,
        refusals=(ErrorType.EMAIL_UNVERIFIED, ErrorType.INVALID_STATE),
    ),
    Operation("DELETE", "/v1/api-keys/{id}", revoke_key, "Revoke an API key", _ADMINS, open_to_suspended=True),
)
