"""`GET /v1/instance`: the facts that a client needs before anybody signs in."""

from typing import Final

from api.areas.instance.schemas import Instance, SignInProvider, SignUpTerms, Submission
from api.http.operation import Access, Call, Operation
from engine.areas.identity.provider import IdentityProvider
from engine.areas.identity.rules import shown_name
from engine.areas.passkeys.rules import is_loopback, relying_party
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.base.version import version

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
        sign_up=SignUpTerms(settings.signup == "open", settings.signup_challenge == "required"),
        identity_provider=_provider(settings, call.services.provider),
        passkeys=_has_passkeys(settings),
        submission=_submission(settings),
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
    """Return the server's address; assume that another host runs `relay` processes if this one does not."""
    local = settings.delivery == "local"
    here = "relay" in settings.processes
    if here and (settings.relay_workers == 0 or not (local or settings.tls_cert)):
        return None
    host = settings.submission_host if local and is_loopback(settings.submission_host) else settings.mail_host
    return Submission(host, settings.submission_port, settings.submission_tls_port)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/instance",
        tag="Other",
        summary="Read facts about this installation",
        access=Access.NONE,
        reply=Instance,
        handler=read_instance,
    ),
)
