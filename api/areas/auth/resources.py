"""Signing up, in and out; listing and ending the sessions of a person."""

from api.areas.auth.schemas import (
    Challenge,
    FollowLink,
    LogIn,
    OneSession,
    SessionList,
    SignedUp,
    SignInState,
    SignUp,
    SwitchAccount,
)
from api.http import auth
from api.http.cookies import no_session
from api.http.operation import Access, Area, Call, HeaderField, Operation
from api.http.paging import Page
from api.http.session import Session, account_of, account_shown, person_of, session_reply
from engine.base import clock, ids
from engine.base.errors import ErrorType, invalid
from engine.people import log_in, open_session, sign_in_link, sign_up
from engine.people.people import challenge
from engine.people.people import store as people
from engine.people.sessions import rules, store


async def post_signup(call: Call, body: SignUp) -> SignedUp:
    """Open an account with its owner, or mail a notice if a person has the address already."""
    email = await sign_up.sign_up(
        call.services,
        sign_up.SignUpRequest(body.email, body.password, body.account_name, body.challenge_token),
        auth.device(call.request),
    )
    return SignedUp("verification_sent", email)


async def get_challenge(call: Call) -> Challenge:
    """Return a proof of work to solve before signing up; `WAYBILL_SIGNUP_CHALLENGE` can require it."""
    made = challenge.make(call.settings.pepper, clock.now())
    return Challenge(
        made.algorithm,
        made.challenge,
        made.maxnumber,
        made.salt,
        made.signature,
        required=call.settings.signup_challenge == "required",
    )


async def post_login(call: Call, body: LogIn) -> Session:
    """Open a session for an address, its password and, where one is set up, a code."""
    device = auth.device(call.request)
    caller = await call.services.sessions.person(auth.session_secret(call.request), device)
    made = await log_in.log_in(
        call.services, body.email, body.password, body.code, device, caller=caller, challenge_token=body.challenge_token
    )
    return await session_reply(call, made)


async def post_link(call: Call, body: FollowLink) -> Session:
    """Open a session for the token of a sign-in link."""
    made = await sign_in_link.follow_link(call.services, body.token, body.code, auth.device(call.request))
    return await session_reply(call, made)


async def post_logout(call: Call) -> None:
    """End the session of the cookie, if it has one, and delete the cookie. A live session needs its CSRF token."""
    secret = auth.session_secret(call.request)
    person = await call.services.sessions.person(secret, auth.device(call.request))
    if person is not None:
        auth.check_csrf(person, call.request.get_header(auth.CSRF_HEADER))
    if secret is not None and rules.well_formed(secret):
        await open_session.sign_out(call.services.pool, call.settings.pepper, secret)
    call.cookies = (no_session(call.settings),)


async def get_state(call: Call) -> SignInState:
    """Return whether the cookie belongs to a valid session, with its person and account."""
    secret = auth.session_secret(call.request)
    person = await call.services.sessions.person(secret, auth.device(call.request))
    if person is None:
        if secret is not None:
            call.cookies = (no_session(call.settings),)
        return SignInState(signed_in=False)
    memberships = await people.MEMBERSHIPS.fetch(call.services.pool, person.user_id)
    return SignInState(
        signed_in=True,
        csrf_token=person.csrf,
        user=person_of(person),
        account=account_of(person),
        accounts=[
            account_shown(ids.format_id(ids.Kind.ACCOUNT, one.account_id), one.name, one.role, one.plan, one.status)
            for one in memberships
        ],
        operator=auth.is_operator(call.settings, person),
    )


async def list_sessions(call: Call, page: Page) -> SessionList:
    """Return a page of the person's sessions on all devices."""
    person, at = call.person, clock.now()
    rows = await store.LIST.fetch(call.services.pool, person.user_id, at, at - rules.IDLE, page.probe, page.before)

    def shown(row: store.SessionListRow) -> OneSession:
        return OneSession(
            id=ids.format_id(ids.Kind.SESSION, row.id),
            current=row.id == person.session_id,
            account_id=ids.format_id(ids.Kind.ACCOUNT, row.account_id),
            account_name=row.account_name,
            method=row.method,
            ip_address=row.address,
            user_agent=row.agent,
            created_at=clock.iso(row.created_at),
            last_used_at=clock.iso(row.used_at),
            expires_at=clock.iso(row.expires_at),
        )

    return SessionList(*page.of(rows, shown))


async def revoke_one(call: Call) -> None:
    """End one session of the person; if it is the current one, delete its cookie."""
    person = call.person
    await open_session.revoke_one(call.services.pool, person.user_id, call.id)
    if call.id == person.session_id:
        call.cookies = (no_session(call.settings),)


async def revoke_others(call: Call) -> None:
    """End all other sessions of the person."""
    person = call.person
    await open_session.revoke_others(call.services.pool, person.user_id, person.session_id)


async def switch_account(call: Call, body: SwitchAccount) -> Session:
    """Switch the session to another account; its cookie and CSRF token change."""
    try:
        account = ids.parse_id(ids.Kind.ACCOUNT, body.account_id)
    except ids.WrongId as error:
        raise invalid("accountId", f"`accountId` is not the id of an account: {error}.") from None
    person = call.person
    made = await open_session.switch_account(
        call.services.pool, call.settings.pepper, person.session_id, person.user_id, account
    )
    return await session_reply(call, made)


_ANYONE = Area("Auth", access=Access.NONE)
_PEOPLE = Area("Auth", access=Access.SESSION, id_of=ids.Kind.SESSION)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/auth/signup",
        post_signup,
        "Sign up a new person with a first account",
        _ANYONE,
        success=201,
        refusals=(ErrorType.INVALID_ADDRESS, ErrorType.FORBIDDEN),
    ),
    Operation("GET", "/v1/auth/signup/challenge", get_challenge, "Get a challenge to solve before signing up", _ANYONE),
    Operation(
        "POST",
        "/v1/auth/login",
        post_login,
        "Sign in with a password",
        _ANYONE,
        refusals=(
            ErrorType.INVALID_ADDRESS,
            ErrorType.INVALID_CREDENTIALS,
            ErrorType.TOTP_REQUIRED,
            ErrorType.FORBIDDEN,
        ),
    ),
    Operation(
        "POST",
        "/v1/auth/link",
        post_link,
        "Sign in with a link from the operator",
        _ANYONE,
        refusals=(ErrorType.INVALID_CREDENTIALS, ErrorType.TOTP_REQUIRED, ErrorType.FORBIDDEN),
    ),
    Operation(
        "POST",
        "/v1/auth/logout",
        post_logout,
        "Sign out",
        _ANYONE,
        headers=(HeaderField(auth.CSRF_HEADER, "The CSRF token, needed while the session is alive", ".*"),),
        refusals=(ErrorType.CSRF_FAILED,),
    ),
    Operation("GET", "/v1/auth/me", get_state, "Read the sign-in state", _ANYONE),
    Operation("GET", "/v1/auth/sessions", list_sessions, "List your sessions", _PEOPLE, page=ids.Kind.SESSION),
    Operation("DELETE", "/v1/auth/sessions/{id}", revoke_one, "End one of your sessions", _PEOPLE),
    Operation("POST", "/v1/auth/sessions/revoke-others", revoke_others, "End all your other sessions", _PEOPLE),
    Operation(
        "POST",
        "/v1/auth/switch",
        switch_account,
        "Switch to another of your accounts",
        _PEOPLE,
        refusals=(ErrorType.NOT_FOUND,),
    ),
)
