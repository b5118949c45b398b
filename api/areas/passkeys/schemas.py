"""Requests and replies of passkeys: the JSON forms of W3C Web Authentication, level 3, sections 5.1.8 to 5.1.10.

Objects from browsers may have members beyond those read here: `PublicKeyCredential.toJSON()` is sent as it is.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from engine.people.passkeys.rules import MAX_NAME
from engine.people.people.rules import MAX_PASSWORD

# Characters of base64url. A credential id has up to 1,023 octets, a user handle up to 64; the rest is ample.
CredentialId = Annotated[str, Meta(min_length=1, max_length=1_400)]
ClientData = Annotated[str, Meta(min_length=1, max_length=8_000)]
AttestationObject = Annotated[str, Meta(min_length=1, max_length=40_000)]
AuthenticatorData = Annotated[str, Meta(min_length=1, max_length=8_000)]
Signature = Annotated[str, Meta(min_length=1, max_length=2_000)]
UserHandle = Annotated[str, Meta(max_length=100)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class BeginRegistration(Struct, rename="camel", forbid_unknown_fields=True):
    """The caller's password, for `POST /v1/auth/passkeys/register/options`; needed if the sign-in is older than ten
    minutes. `code`: needed from a person with an authenticator."""

    password: Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)] | None = None
    code: Annotated[str, Meta(min_length=1, max_length=32)] | None = None


class Party(Struct):
    """The relying party that the passkey is for."""

    id: str
    name: str


class Owner(Struct, rename="camel"):
    """The person that the passkey belongs to."""

    id: str
    name: str
    display_name: str


class Parameter(Struct):
    """A kind of key that is accepted, by its COSE algorithm."""

    type: Literal["public-key"]
    alg: int


class Descriptor(Struct):
    """An existing passkey."""

    id: str
    type: Literal["public-key"]
    transports: list[str]


class Selection(Struct, rename="camel"):
    """The abilities that the authenticator must have."""

    resident_key: Literal["required"]
    require_resident_key: bool
    user_verification: Literal["required"]


class CreationOptions(Struct, rename="camel"):
    """Options for `PublicKeyCredential.parseCreationOptionsFromJSON`."""

    rp: Party
    user: Owner
    challenge: str
    pub_key_cred_params: list[Parameter]
    timeout: int
    exclude_credentials: list[Descriptor]
    authenticator_selection: Selection
    attestation: Literal["none"]


class RegistrationOptions(Struct, rename="camel"):
    """Options for `navigator.credentials.create({publicKey:

    PublicKeyCredential.parseCreationOptionsFromJSON(publicKey)})`.
    """

    public_key: CreationOptions


class AttestationResponse(Struct, rename="camel"):
    """The authenticator's response to the creation of a passkey."""

    client_data_json: ClientData = field(name="clientDataJSON")
    attestation_object: AttestationObject
    transports: Annotated[list[Annotated[str, Meta(max_length=32)]], Meta(max_length=20)] = []


class RegisteredCredential(Struct, rename="camel"):
    """The `toJSON()` of the new credential."""

    id: CredentialId
    raw_id: CredentialId
    response: AttestationResponse
    type: Literal["public-key"]


class FinishRegistration(Struct, rename="camel", forbid_unknown_fields=True):
    """The new passkey, for `POST /v1/auth/passkeys/register/verify`; without a `name` it gets a number as its name."""

    credential: RegisteredCredential
    name: Name | None = None


class RequestOptions(Struct, rename="camel"):
    """Options for `PublicKeyCredential.parseRequestOptionsFromJSON`; the device finds its passkeys by itself."""

    challenge: str
    timeout: int
    rp_id: str
    user_verification: Literal["required"]


class SignInOptions(Struct, rename="camel"):
    """Options for `navigator.credentials.get({publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey)})`.

    A cookie ties the challenge to the browser. Both are valid for five minutes, the challenge for one try.
    """

    public_key: RequestOptions


class AssertionResponse(Struct, rename="camel"):
    """The authenticator's signed response to the challenge."""

    client_data_json: ClientData = field(name="clientDataJSON")
    authenticator_data: AuthenticatorData
    signature: Signature
    user_handle: UserHandle | None = None


class PresentedCredential(Struct, rename="camel"):
    """The `toJSON()` of the presented credential."""

    id: CredentialId
    raw_id: CredentialId
    response: AssertionResponse
    type: Literal["public-key"]


class FinishSignIn(Struct, rename="camel", forbid_unknown_fields=True):
    """The presented passkey, for `POST /v1/auth/passkeys/login/verify`."""

    credential: PresentedCredential


class RenamePasskey(Struct, rename="camel", forbid_unknown_fields=True):
    """The new name of a passkey, for `PATCH /v1/auth/passkeys/{id}`."""

    name: Name


class Passkey(Struct, rename="camel"):
    """A passkey of the person. `backedUp`: at its last use it was synchronised to other devices.

    `suspectedAt` is set if the passkey's counter went backwards, so that a copy of it may exist: it is no longer
    accepted. Remove it, and register its device again.
    """

    id: str
    name: str
    created_at: str
    last_used_at: str | None
    backed_up: bool
    transports: list[str]
    suspected_at: str | None


class PasskeyList(Struct, rename="camel"):
    """The person's passkeys, newest first. `nextCursor` is null on the last page."""

    data: list[Passkey]
    next_cursor: str | None
