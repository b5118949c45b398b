"""`GET /v1/me`, the name of the account, and the profile of the signed-in person."""

from typing import Literal, cast

from api.areas.account.schemas import Cap, Me, Profile, ProfileChange, RenameAccount, Sending
from api.http.operation import Access, Area, Call, LimitedKeys, Operation
from engine.base import clock, ids
from engine.base.errors import ErrorType
from engine.base.plans import Plan
from engine.base.roles import Role
from engine.people import change_profile as profile
from engine.people.account import allowance, rules, store
from engine.people.api_keys.key_auth import unauthorized
from engine.people.people.store import ProfileRow


async def read_me(call: Call) -> Me:
    """Return the account, its plan, its sending allowance and the use of its limits."""
    async with call.services.pool.acquire() as connection:
        account = await store.READ.first(connection, call.account_id)
        if account is None:  # the account was erased since the key's lookup
            raise unauthorized()
        at = clock.now()
        left = await allowance.read(connection, call.account_id, at)
        (used,) = await store.USED.fetch(connection, call.account_id, clock.first_of_month(at.date()))
    plan, caps = Plan(account.plan), account.caps
    return Me(
        id=ids.format_id(ids.Kind.ACCOUNT, account.id),
        name=account.name,
        plan=plan,
        status=cast("Literal['active', 'suspended', 'closing']", account.status),
        created_at=clock.iso(account.created_at),
        parent_id=None if account.parent_id is None else ids.format_id(ids.Kind.ACCOUNT, account.parent_id),
        sending=Sending(
            daily_limit=left.daily_limit,
            sent_today=left.sent_today,
            remaining_today=left.remaining_today,
            warmup_tier=left.rung,
            monthly_limit=left.monthly_limit,
            sent_this_month=left.sent_this_month,
            remaining_this_month=left.remaining_this_month,
        ),
        retention_days=rules.retention_days(plan, account.retention_days),
        schedule_days=caps.schedule_days,
        analytics_days=caps.analytics_days,
        requests_per_second=call.settings.request_rate or caps.requests_per_second,
        limits=[
            Cap(cap.resource, cap.limit, getattr(used, cap.resource))
            for cap in rules.shown_caps(caps, monthly_limit=left.monthly_limit, below=account.parent_id is not None)
        ],
    )


async def rename(call: Call, body: RenameAccount) -> Me:
    """Rename the account."""
    await profile.rename_account(call.services.pool, call.account_id, body.name, actor=call.actor)
    return await read_me(call)


async def read_profile(call: Call) -> Profile:
    """Return the signed-in person's profile."""
    return _profile(await profile.read_profile(call.services.pool, call.person.user_id))


async def change_profile(call: Call, body: ProfileChange) -> Profile:
    """Change the given fields of the profile."""
    wanted = profile.ProfilePatch(
        name=body.name,
        display_name=body.display_name,
        timezone=body.timezone,
        signature=body.signature,
        signature_addresses=body.signature_addresses,
    )
    person = call.person
    return _profile(await profile.change_profile(call.services.pool, person.account_id, person.user_id, wanted))


def _profile(row: ProfileRow) -> Profile:
    return Profile(
        id=ids.format_id(ids.Kind.USER, row.id),
        email=row.email,
        email_verified=row.email_verified_at is not None,
        name=row.name or None,
        display_name=row.display_name,
        timezone=row.timezone,
        signature=row.signature,
        signature_addresses=row.signature_addresses,
    )


_KEYS = Area("Account", reads=("account:read",), limited_keys=LimitedKeys.FREE)
_ADMINS = Area("Account", access=Access.SESSION, role=Role.ADMIN)
_PEOPLE = Area("Account", access=Access.SESSION)
OPERATIONS = (
    Operation("GET", "/v1/me", read_me, "Read the account, its plan and its sending allowance", _KEYS),
    Operation("PATCH", "/v1/account", rename, "Rename the account", _ADMINS),
    Operation("GET", "/v1/profile", read_profile, "Read your profile", _PEOPLE),
    Operation(
        "PATCH", "/v1/profile", change_profile, "Change your profile", _PEOPLE, refusals=(ErrorType.INVALID_ADDRESS,)
    ),
)
