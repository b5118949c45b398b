"""Verify answers of browsers with py_webauthn; return facts or raise `Rejected`. No I/O.

Checks in addition to the library: the key type fits its algorithm, the request does not come from a cross-origin frame,
and the attestation is `none` or self attestation, because none is requested and no certificates are checked.
"""

import base64
import re
from functools import cache

from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct
from webauthn import verify_authentication_response, verify_registration_response
from webauthn.helpers import (
    decode_credential_public_key,
    encode_cbor,
    parse_attestation_object,
    parse_client_data_json,
)
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.decoded_public_key_to_cryptography import decoded_public_key_to_cryptography
from webauthn.helpers.structs import (
    AttestationFormat,
    AuthenticationCredential,
    AuthenticatorAssertionResponse,
    AuthenticatorAttestationResponse,
    CredentialDeviceType,
    RegistrationCredential,
)

from engine.people.passkeys.rules import ALGORITHMS, RelyingParty

_BASE64URL = re.compile(r"[A-Za-z0-9_-]*={0,2}", re.ASCII)
_MAX_KEY_BYTES = 600  # fits RSA with 4096 bits; longer keys only cost CPU
_MIN_ID_BYTES, _MAX_ID_BYTES = 16, 1023  # WebAuthn 4, credential id
_KINDS = {-7: (2, 1), -8: (1, 6), -257: (3, None)}  # algorithm to COSE kty and crv (RFC 9053 section 7, RFC 8230)


class Rejected(ValueError):  # noqa: N818 - named for what happened to the answer
    """Report an answer that fails verification; the text is for the operator's log."""


class Attestation(Struct, frozen=True):
    """The result of `navigator.credentials.create()` as JSON, byte strings in base64url."""

    id: str
    raw_id: str
    client_data: str
    attestation: str


class Assertion(Struct, frozen=True):
    """The result of `navigator.credentials.get()` as JSON, byte strings in base64url."""

    id: str
    raw_id: str
    client_data: str
    authenticator_data: str
    signature: str
    user_handle: str | None


class VerifiedPasskey(Struct, frozen=True):
    """The public key and state of a verified registration."""

    credential_id: bytes
    public_key: bytes
    sign_count: int
    backup_eligible: bool
    backed_up: bool


class Signed(Struct, frozen=True):
    """A verified signature; the caller must check its counter."""

    sign_count: int
    backup_eligible: bool
    backed_up: bool


def octets(text: str) -> bytes:
    """Decode base64url with or without padding; raise Rejected."""
    if not _BASE64URL.fullmatch(text):
        raise Rejected("not base64url")
    try:
        return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except ValueError:
        raise Rejected("not base64url") from None


def text_of(value: bytes) -> str:
    """Encode as base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def challenge_of(client_data: str) -> bytes:
    """Return the challenge that the client data names; raise Rejected."""
    raw = octets(client_data)
    try:
        return parse_client_data_json(raw).challenge
    except Exception as error:  # noqa: BLE001 - any exception of the library means invalid input
        raise Rejected(f"client data: {error!r}"[:300]) from None


def registered(answer: Attestation, challenge: bytes, party: RelyingParty) -> VerifiedPasskey:
    """Verify a registration with user verification; return the new public key or raise Rejected."""
    credential = RegistrationCredential(
        id=answer.id,
        raw_id=octets(answer.raw_id),
        response=AuthenticatorAttestationResponse(octets(answer.client_data), octets(answer.attestation)),
    )
    try:
        _check_frame(credential.response.client_data_json)
        _check_attestation(credential.response.attestation_object)
        verified = verify_registration_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=True,
            supported_pub_key_algs=[COSEAlgorithmIdentifier(number) for number in ALGORITHMS],
        )
        _check_key(verified.credential_public_key)
    except Rejected:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        raise Rejected(f"registration: {error!r}"[:300]) from None
    if not _MIN_ID_BYTES <= len(verified.credential_id) <= _MAX_ID_BYTES or verified.credential_id != octets(
        answer.raw_id
    ):
        raise Rejected("the credential id has an invalid length or differs from the signed one")
    return VerifiedPasskey(
        verified.credential_id,
        verified.credential_public_key,
        verified.sign_count,
        verified.credential_device_type is CredentialDeviceType.MULTI_DEVICE,
        verified.credential_backed_up,
    )


def signed(answer: Assertion, challenge: bytes, party: RelyingParty, public_key: bytes | None) -> Signed:
    """Verify a signature over our challenge with user verification; raise Rejected.

    Without a key, takes the same time and always raises.
    """
    credential = AuthenticationCredential(
        id=answer.id,
        raw_id=octets(answer.raw_id),
        response=AuthenticatorAssertionResponse(
            octets(answer.client_data), octets(answer.authenticator_data), octets(answer.signature)
        ),
    )
    try:
        _check_frame(credential.response.client_data_json)
        verified = verify_authentication_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            credential_public_key=dummy_key() if public_key is None else public_key,
            credential_current_sign_count=0,  # checked by the caller, after the signature
            require_user_verification=True,
        )
    except Rejected:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        raise Rejected(f"assertion: {error!r}"[:300]) from None
    if public_key is None:
        raise Rejected("unknown credential id")
    return Signed(
        verified.new_sign_count,
        verified.credential_device_type is CredentialDeviceType.MULTI_DEVICE,
        verified.credential_backed_up,
    )


@cache
def dummy_key() -> bytes:
    """Return a key to verify signatures of unknown credentials against, so that these take the same time."""
    numbers = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    return encode_cbor({1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")})


def _check_frame(client_data: bytes) -> None:
    if parse_client_data_json(client_data).cross_origin:
        raise Rejected("made in a cross-origin frame")


def _check_attestation(attestation: bytes) -> None:
    parsed = parse_attestation_object(attestation)
    own = parsed.fmt == AttestationFormat.PACKED and parsed.att_stmt.x5c is None
    if parsed.fmt != AttestationFormat.NONE and not own:
        raise Rejected(f"attestation {parsed.fmt!r} was not requested")


def _check_key(public_key: bytes) -> None:
    if len(public_key) > _MAX_KEY_BYTES:
        raise Rejected("the public key is too long")
    key = decode_credential_public_key(public_key)
    kty, crv = _KINDS[int(key.alg)]
    if int(key.kty) != kty or (crv is not None and int(getattr(key, "crv", 0)) != crv):
        raise Rejected("the type of the public key does not fit its algorithm")
    decoded_public_key_to_cryptography(key)  # raises for a point that is not on the curve
