"""Confirming and changing an address, and resetting and changing passwords, with links sent by mail."""

from datetime import datetime

from api.areas.email_verification.schemas import (
    ChangeEmail,
    ChangePassword,
    Forgot,
    Mailed,
    OtherWaysIn,
    Reset,
    WayIn,
    WithProof,
    WithToken,
)
from api.http import auth
from api.http.operation import Access, Call, Operation
from api.http.session import renew_session
from engine.accounts.account_deletion import end_sign_up
from engine.base import clock
from engine.base.errors import ErrorType
from engine.people import change_email, change_password, forgot_password, verify_email
from engine.people.identity.rules import shown_name


async def post_verify(call: Call) -> None:
    """Confirm the address with the token of a link."""
    body: WithProof = call.body
    device = auth.device(call.request)
    caller = await call.services.sessions.person(auth.session_secret(call.request), device)
    await verify_email.verify(call.services, body.token, device, password=body.password, caller=caller)


async def post_end_sign_up(call: Call) -> None:
    """End a sign-up with the token of its mail: remove all access to it, and erase its account."""
    body: WithToken = call.body
    await end_sign_up.end_sign_up(call.services, body.token, auth.device(call.request))


async def post_send(call: Call) -> Mailed:
    """Mail another link to confirm the address."""
    await verify_email.send_again(call.services, call.person)
    return Mailed()


async def post_email_change(call: Call) -> Mailed:
    """Mail a link to the new address, and a notice to the old one."""
    body: ChangeEmail = call.body
    await change_email.request_change(call.services, call.person, body.new_email, body.current_password)
    return Mailed()


async def post_email_confirm(call: Call) -> None:
    """Use the new address from now on; the person's session in this request continues, all others end."""
    body: WithProof = call.body
    device = auth.device(call.request)
    caller = await call.services.sessions.person(auth.session_secret(call.request), device)
    made = await change_email.confirm(call.services, body.token, device, password=body.password, caller=caller)
    if made is not None:
        renew_session(call, made)


async def post_forgot(call: Call) -> Mailed:
    """Mail a link to set a new password, if the address has a person."""
    body: Forgot = call.body
    await forgot_password.forgot(call.services, body.email, auth.device(call.request))
    return Mailed()


async def post_reset(call: Call) -> None:
    """Set a new password with the token of a link; every session of the person ends."""
    body: Reset = call.body
    await forgot_password.reset(
        call.services, body.token, body.password, auth.device(call.request), remove_others=body.remove_others
    )


async def post_other_ways(call: Call) -> OtherWaysIn:
    """List passkeys and identities of the person of a reset link, which this does not use up."""
    body: WithToken = call.body
    found = await forgot_password.other_ways_in(call.services, body.token, auth.device(call.request))
    issuer, name = call.settings.idp_issuer, call.settings.idp_name
    return OtherWaysIn(
        [_way_in(one.name, one.created_at, one.last_used_at) for one in found.passkeys],
        [
            _way_in(shown_name(name if one.issuer == issuer else None, one.issuer), one.created_at, one.used_at)
            for one in found.identities
        ],
    )


def _way_in(name: str, created_at: datetime, used_at: datetime | None) -> WayIn:
    return WayIn(name, clock.iso(created_at), None if used_at is None else clock.iso(used_at))


async def post_password_change(call: Call) -> None:
    """Change the password; the session gets a new cookie and CSRF token, all others end."""
    body: ChangePassword = call.body
    made = await change_password.change_password(call.services, call.person, body.current_password, body.new_password)
    renew_session(call, made)


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/auth/verify-email",
        tag="Auth",
        summary="Confirm your address",
        access=Access.NONE,
        request=WithProof,
        success=204,
        refusals=(ErrorType.INVALID_CREDENTIALS,),
        handler=post_verify,
    ),
    Operation(
        method="POST",
        path="/v1/auth/signup/end",
        tag="Auth",
        summary="End a sign-up that somebody else made with your address",
        access=Access.NONE,
        request=WithToken,
        success=204,
        handler=post_end_sign_up,
    ),
    Operation(
        method="POST",
        path="/v1/auth/verify-email/send",
        tag="Auth",
        summary="Send the link to confirm your address again",
        access=Access.SESSION,
        reply=Mailed,
        success=202,
        refusals=(ErrorType.INVALID_STATE,),
        handler=post_send,
    ),
    Operation(
        method="POST",
        path="/v1/auth/email/change",
        tag="Auth",
        summary="Request a change of your address",
        access=Access.SESSION,
        request=ChangeEmail,
        reply=Mailed,
        success=202,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.INVALID_ADDRESS),
        handler=post_email_change,
    ),
    Operation(
        method="POST",
        path="/v1/auth/email/change/confirm",
        tag="Auth",
        summary="Confirm the new address; your session gets a new cookie, and its CSRF token in X-CSRF-Token",
        access=Access.NONE,
        request=WithProof,
        success=204,
        refusals=(ErrorType.CONFLICT, ErrorType.INVALID_CREDENTIALS),
        handler=post_email_confirm,
    ),
    Operation(
        method="POST",
        path="/v1/auth/password/forgot",
        tag="Auth",
        summary="Request a link to set a new password",
        access=Access.NONE,
        request=Forgot,
        reply=Mailed,
        success=202,
        refusals=(ErrorType.INVALID_ADDRESS,),
        handler=post_forgot,
    ),
    Operation(
        method="POST",
        path="/v1/auth/password/reset",
        tag="Auth",
        summary="Set a new password by a link",
        access=Access.NONE,
        request=Reset,
        success=204,
        handler=post_reset,
    ),
    Operation(
        method="POST",
        path="/v1/auth/password/reset/others",
        tag="Auth",
        summary="List what else signs in the person of a reset link",
        access=Access.NONE,
        request=WithToken,
        reply=OtherWaysIn,
        handler=post_other_ways,
    ),
    Operation(
        method="POST",
        path="/v1/auth/password/change",
        tag="Auth",
        summary="Change your password; the session gets a new cookie, and its CSRF token in X-CSRF-Token",
        access=Access.SESSION,
        request=ChangePassword,
        success=204,
        refusals=(ErrorType.INVALID_CREDENTIALS,),
        handler=post_password_change,
    ),
)
