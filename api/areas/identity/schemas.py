"""Wire shapes of signing in with an identity provider."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.areas.identity.id_tokens import MAX_OCTETS
from engine.areas.identity.rules import MAX_RETURN, MAX_TOKEN

# RFC 6749, appendix A: what counts is printable ASCII.
_Visible = "^[ -~]*$"
_Code = Annotated[str, Meta(max_length=4_000, pattern=_Visible)]
_State = Annotated[str, Meta(max_length=2_000, pattern=_Visible)]
_Word = Annotated[str, Meta(max_length=1_000, pattern=_Visible)]


class Start(Struct, rename="camel"):
    """`GET /v1/auth/idp/start`. `returnTo`: a path on this service to come back to. An app gives `appRedirect`, one of
    those that the operator has set, with `verifierChallenge`, the S256 of its verifier (RFC 7636).
    """

    return_to: Annotated[str, Meta(max_length=MAX_RETURN)] | None = None
    app_redirect: Annotated[str, Meta(max_length=2_000)] | None = None
    verifier_challenge: Annotated[str, Meta(max_length=128)] | None = None


class Callback(Struct):
    """`GET /v1/auth/idp/callback`, as the provider has the browser call it. What providers add is passed over, as
    RFC 6749, 4.1.2 demands: session states, descriptions of errors, prompts, traces."""

    state: _State | None = None
    code: _Code | None = None
    iss: _Word | None = None
    error: _Word | None = None


class OneTapNonce(Struct, rename="camel"):
    """What a page gives to the provider's one-tap button. The nonce is good once, in this browser, for ten minutes."""

    nonce: str
    client_id: str
    issuer: str
    name: str
    expires_in: int


class OneTap(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/idp/one-tap`. `credential`: the provider's id token."""

    credential: Annotated[str, Meta(min_length=1, max_length=MAX_OCTETS)]


class ShowCode(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/idp/totp`. `code`: of the authenticator app, or a recovery code."""

    ticket: Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN)]
    code: Annotated[str, Meta(min_length=1, max_length=32)]


class Exchange(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/idp/mobile/exchange`. `code`: of the app's redirect; `verifier`: the one of the challenge."""

    code: Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN)]
    verifier: Annotated[str, Meta(min_length=1, max_length=128)]


class Identity(Struct, rename="camel"):
    """A way to sign in with an identity provider. `current`: with the one that this service uses today."""

    id: str
    issuer: str
    name: str
    current: bool
    created_at: str
    last_used_at: str


class IdentityList(Struct):
    """The newest first."""

    data: list[Identity]
