"""Requests and replies of signing in with an identity provider."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.people.identity.id_tokens import MAX_OCTETS
from engine.people.identity.rules import MAX_RETURN, MAX_TOKEN

# RFC 6749, appendix A: these parameters are printable ASCII.
_Visible = "^[ -~]*$"
_Code = Annotated[str, Meta(max_length=4_000, pattern=_Visible)]
_State = Annotated[str, Meta(max_length=2_000, pattern=_Visible)]
_Word = Annotated[str, Meta(max_length=1_000, pattern=_Visible)]


class Start(Struct, rename="camel"):
    """The query of `GET /v1/auth/idp/start`.

    `returnTo`: a path on this service to return to. An app gives `appRedirect`, one of the redirects that the operator
    has set, with `verifierChallenge`, the S256 of its verifier (RFC 7636).
    """

    return_to: Annotated[str, Meta(max_length=MAX_RETURN)] | None = None
    app_redirect: Annotated[str, Meta(max_length=2_000)] | None = None
    verifier_challenge: Annotated[str, Meta(max_length=128)] | None = None


class Callback(Struct):
    """The query of `GET /v1/auth/idp/callback`, which the provider makes the browser call.

    Other parameters are ignored, as RFC 6749, 4.1.2 demands: providers add session states, error descriptions, prompts,
    traces.
    """

    state: _State | None = None
    code: _Code | None = None
    iss: _Word | None = None
    error: _Word | None = None


class OneTapNonce(Struct, rename="camel"):
    """The values that a page gives to the provider's one-tap button.

    The nonce works once, in this browser, for ten minutes.
    """

    nonce: str
    client_id: str
    issuer: str
    name: str
    expires_in: int


class OneTap(Struct, rename="camel", forbid_unknown_fields=True):
    """The provider's ID token as `credential`, for `POST /v1/auth/idp/one-tap`."""

    credential: Annotated[str, Meta(min_length=1, max_length=MAX_OCTETS)]


class ShowCode(Struct, rename="camel", forbid_unknown_fields=True):
    """The code of the authenticator app, or a recovery code, for `POST /v1/auth/idp/totp`."""

    ticket: Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN)]
    code: Annotated[str, Meta(min_length=1, max_length=32)]


class Exchange(Struct, rename="camel", forbid_unknown_fields=True):
    """The `code` from the app's redirect and the `verifier` of its challenge: `POST /v1/auth/idp/mobile/exchange`."""

    code: Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN)]
    verifier: Annotated[str, Meta(min_length=1, max_length=128)]


class Identity(Struct, rename="camel"):
    """A sign-in at an identity provider. `current`: the provider is the one that this service uses now."""

    id: str
    issuer: str
    name: str
    current: bool
    created_at: str
    last_used_at: str


class IdentityList(Struct, rename="camel"):
    """The person's identities, newest first. `nextCursor` is null on the last page."""

    data: list[Identity]
    next_cursor: str | None
