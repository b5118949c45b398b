"""`/v1/verifications`: starting, reading, checking, resending and cancelling one-time codes, and their branding."""

from api.areas.verifications.schemas import (
    Branding,
    BrandingChange,
    CodeCheck,
    CodeChecked,
    LogoUpload,
    ShownLogo,
    Verification,
)
from api.http import owner_checks
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock, ids
from engine.base.errors import ErrorType
from engine.codes.verifications import branding, service
from engine.codes.verifications.requests import ResendRequest, StartRequest
from engine.codes.verifications.send import SOURCE
from engine.codes.verifications.types import SettingsRow, VerificationRow, VerificationStatus
from engine.sending.preparation import Origin

SENDS = (
    ErrorType.INVALID_ADDRESS, ErrorType.DOMAIN_NOT_VERIFIED, ErrorType.SUPPRESSED, ErrorType.PLAN_LIMIT_REACHED,
    ErrorType.DESTINATION_LOCKED, ErrorType.DAILY_LIMIT_REACHED, ErrorType.MONTHLY_LIMIT_REACHED,
    ErrorType.PLATFORM_PAUSED, ErrorType.NOT_FOUND,
)  # fmt: skip


async def start(call: Call, body: StartRequest) -> Verification:
    """Start a verification; answer 201, or 200 for a repeated idempotency key."""
    started = await call.services.codes.start(body, _origin(call))
    if started.replayed:
        call.status = 200
    return _shown(started.row)


async def read(call: Call) -> Verification:
    """Return one verification."""
    return _shown(await service.read(call.services.pool, call.account_id, call.id))


async def check(call: Call, body: CodeCheck) -> CodeChecked:
    """Compare a typed code."""
    keys = call.services.codes.keys
    status, left = await service.check(call.services.pool, keys, call.account_id, call.id, body.code)
    return CodeChecked(id=call.path["id"], status=status, attempts_remaining=left)


async def resend(call: Call, body: ResendRequest) -> Verification:
    """Send another code."""
    return _shown(await call.services.codes.resend(call.id, body, _origin(call)))


async def cancel(call: Call) -> Verification:
    """Cancel a pending verification."""
    return _shown(await service.cancel(call.services.pool, call.account_id, call.id))


async def read_branding(call: Call) -> Branding:
    """Return the branding."""
    return _branding(call, await branding.read(call.services.pool, call.account_id))


async def change_branding(call: Call, body: BrandingChange) -> Branding:
    """Change the given fields of the branding."""
    row = await branding.change(
        call.services.pool,
        call.account_id,
        brand_name=body.brand_name,
        code_length=body.code_length,
        logo=body.logo.content if isinstance(body.logo, LogoUpload) else body.logo,
        actor=call.actor,
    )
    return _branding(call, row)


def _origin(call: Call) -> Origin:
    return Origin(call.account_id, SOURCE, call.reach, traceparent=call.traceparent)


def _shown(row: VerificationRow) -> Verification:
    return Verification(
        id=ids.format_id(ids.Kind.VERIFICATION, row.id),
        status=VerificationStatus(row.status),
        attempts_remaining=row.attempts_left,
        code_length=row.code_length,
        message_id=ids.format_id(ids.Kind.MESSAGE, row.message_id),
        codes_sent=row.codes_sent,
        created_at=clock.iso(row.created_at),
        expires_at=clock.iso(row.expires_at),
        finished_at=clock.iso_or_none(row.finished_at),
    )


def _branding(call: Call, row: SettingsRow) -> Branding:
    logo = None
    if row.logo_token is not None:
        logo = ShownLogo(
            url=call.services.codes.logo_url(row.logo_token),
            content_type=row.logo_type or "",
            width=row.logo_width or 0,
            height=row.logo_height or 0,
            size_bytes=row.logo_bytes or 0,
        )
    return Branding(brand_name=row.brand_name, code_length=row.code_length, logo=logo)


_KEYS = Area(
    "Verify",
    reads=("verifications:read",),
    writes=("verifications:write",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.verification,
    id_of=ids.Kind.VERIFICATION,
)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/verifications",
        start,
        "Mail a one-time code to an address",
        _KEYS,
        note="Returns 201, or 200 for a repeated `idempotencyKey`. A pending verification of the same address "
        "is cancelled. The code expires after 10 minutes; neither it nor the address can be read anywhere.",
        success=201,
        also=(200,),
        refusals=SENDS,
    ),
    Operation(
        "GET",
        "/v1/verifications/settings",
        read_branding,
        "Read the branding of the mail with codes",
        _KEYS,
        limited_keys=LimitedKeys.FREE,
    ),
    Operation(
        "PUT",
        "/v1/verifications/settings",
        change_branding,
        "Change the branding of the mail with codes",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation("GET", "/v1/verifications/{id}", read, "Read a verification", _KEYS),
    Operation(
        "POST",
        "/v1/verifications/{id}/check",
        check,
        "Check a code that a person has typed",
        _KEYS,
        note="A wrong code is 200 with `status` `pending` or, at the last attempt, `exhausted`; 409 means that the"
        " verification is finished.",
        refusals=(ErrorType.TERMINAL_STATE,),
    ),
    Operation(
        "POST",
        "/v1/verifications/{id}/resend",
        resend,
        "Mail a fresh code with the same deadline and attempts; the earlier one stops working",
        _KEYS,
        refusals=(*SENDS, ErrorType.TERMINAL_STATE),
    ),
    Operation(
        "POST",
        "/v1/verifications/{id}/cancel",
        cancel,
        "Cancel a pending verification",
        _KEYS,
        refusals=(ErrorType.TERMINAL_STATE,),
    ),
)
