"""`GET /v1/instance`: the facts that a client needs before anybody signs in."""

from typing import Final

from api.areas.instance.schemas import IncomingServer, Instance, SignInProvider, SignUpTerms, Submission
from api.http import service_addresses
from api.http.operation import Access, Area, Call, Operation
from engine.base.errors import Refusal
from engine.base.local_mode import may_sign_up
from engine.base.settings import Settings
from engine.base.version import version
from engine.people.identity.provider import IdentityProvider
from engine.people.identity.rules import shown_name
from engine.people.passkeys.rules import relying_party

NAME: Final = "Waybill"
CACHED: Final = (("Cache-Control", "public, max-age=60"),)  # settings change with a restart only


async def read_instance(call: Call) -> Instance:
    """Return the facts, from the settings alone."""
    call.headers = CACHED
    settings = call.settings
    return Instance(
        name=NAME,
        version=version(),
        public_url=settings.public_url.rstrip("/"),
        mail_host=settings.mail_host,
        local=settings.delivery == "local",
        sign_up=SignUpTerms(may_sign_up(settings), settings.signup_challenge == "required"),
        identity_provider=_provider(settings, call.services.provider),
        passkeys=_has_passkeys(settings),
        submission=_submission(settings),
        incoming=_incoming(settings),
    )


def _provider(settings: Settings, provider: IdentityProvider | None) -> SignInProvider | None:
    if provider is None:
        return None
    issuer = provider.config.issuer
    return SignInProvider(shown_name(settings.idp_name, issuer), issuer, provider.config.client_id)


def _has_passkeys(settings: Settings) -> bool:
    try:
        relying_party(settings.public_url, settings.passkey_rp_id)
    except Refusal:
        return False
    return True


def _submission(settings: Settings) -> Submission | None:
    if not service_addresses.has_submission(settings):
        return None
    return Submission(*service_addresses.submission(settings))


def _incoming(settings: Settings) -> IncomingServer | None:
    if not service_addresses.has_incoming(settings):
        return None
    at = service_addresses.incoming(settings)
    return IncomingServer(at.host, at.port)


_ANYONE = Area("Other", access=Access.NONE)
OPERATIONS = (Operation("GET", "/v1/instance", read_instance, "Read facts about this installation", _ANYONE),)
