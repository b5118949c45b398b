"""Verify id tokens (OpenID Connect Core 2): signing keys, signature and claims. Pure.

Accepts only asymmetric algorithms that the provider's metadata names. `none` and HMAC are not implemented, because HMAC
would use the published key as a shared secret.
"""

import base64
import binascii
import hmac
import math
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from hashlib import sha256, sha384, sha512
from typing import Any

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from msgspec import Struct

from engine.base.text import is_line
from engine.people.identity.types import Proven

ALGORITHMS = frozenset(
    {
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
    }
)  # fmt: skip
LEEWAY = timedelta(seconds=60)  # allowed difference between the provider's clock and ours
MAX_OCTETS = 16_384  # of a token
MAX_KEYS = 100
MAX_CANDIDATES = 8  # keys tried for a token without a key id
RSA_BITS = range(2_048, 8_193)  # shorter ones are insecure; longer ones let strangers use up CPU
MAX_EXPONENT = 2**32
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_HASHES = {"256": sha256, "384": sha384, "512": sha512}

Key = RSAKey | ECKey | OKPKey


class BadToken(Exception):  # noqa: N818 - named for what it is about
    """Report an invalid token; the text is for the log only and contains nothing of the token."""


class TokenHeader(Struct, frozen=True):
    """The fields of a JWS header that are checked (RFC 7515 4.1)."""

    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: Any = msgspec.UNSET
    b64: Any = msgspec.UNSET


class Signer(Struct, frozen=True):
    """A published key and the algorithms that it may be used with."""

    kid: str | None
    algorithms: frozenset[str]
    key: Key


class _Set(Struct):
    keys: list[dict[str, Any]]


class _Claims(Struct):
    iss: str
    sub: str
    aud: str | list[str]
    exp: float
    iat: float
    nonce: str
    azp: str | None = None
    nbf: float | None = None
    at_hash: str | None = None
    email: Any = None
    email_verified: Any = None
    name: Any = None


class _Registry(jws.JWSRegistry):
    """Allow exactly the algorithms above, without the library's recommendations and warnings."""

    max_header_length = 2_048
    max_payload_length = MAX_OCTETS

    def __init__(self) -> None:
        super().__init__(algorithms=ALGORITHMS, strict_check_header=False)

    def get_alg(self, name: str) -> Any:
        if name not in ALGORITHMS:
            raise BadToken("its algorithm is not supported")
        return self.algorithms[name]


_REGISTRY = _Registry()
_HEADS = msgspec.json.Decoder(TokenHeader)
_CLAIMS = msgspec.json.Decoder(_Claims)
_SETS = msgspec.json.Decoder(_Set)


def keys_in(document: bytes) -> tuple[Signer, ...]:
    """Return the usable keys of a JWK set, skipping others (RFC 7517 5); raise ValueError for an invalid set.

    A hundred keys take a few milliseconds: call it outside the event loop.
    """
    try:
        listed = _SETS.decode(document).keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("the document is not a JWK set") from error
    found = (_signer(one) for one in listed[:MAX_KEYS])
    return tuple(one for one in found if one is not None)


def head_of(token: str, allowed: Collection[str]) -> TokenHeader:
    """Return the header of a compact JWS without checking the signature; raise BadToken."""
    if not token.isascii() or not 0 < len(token) <= MAX_OCTETS or token.count(".") != 2:
        raise BadToken("it is not a compact JWS")
    try:
        head = _HEADS.decode(_octets(token.partition(".")[0]))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise BadToken("its header can't be read") from None
    if head.alg not in ALGORITHMS or head.alg not in allowed:
        raise BadToken("its algorithm is not supported or not named in the provider's metadata")
    # RFC 8725 3.11: rejects tokens that the provider signs for other purposes.
    if head.typ is not None and head.typ.lower().endswith("+jwt"):
        raise BadToken("it is a token of another type")
    if head.crit is not msgspec.UNSET or head.b64 is not msgspec.UNSET:
        raise BadToken("its header requires an extension")
    return head


def payload_of(token: str, head: TokenHeader, keys: Sequence[Signer]) -> bytes | None:
    """Return the payload if one of the keys verifies the signature, else None."""
    fitting = [one for one in keys if head.alg in one.algorithms and head.kid in (None, one.kid)]
    for one in fitting[:MAX_CANDIDATES]:
        try:
            payload = jws.deserialize_compact(token, one.key, registry=_REGISTRY).payload
        except (JoseError, ValueError, TypeError):  # another key, or a header that the library rejects
            continue
        return payload
    return None


def check(
    payload: bytes,
    head: TokenHeader,
    *,
    issuer: str,
    client_id: str,
    nonce: str | None,
    at: datetime,
    access_token: str | None = None,
) -> tuple[Proven, str]:
    """Return what the signed claims prove at `at`, and their nonce (OpenID Connect Core 3.1.3.7); raise BadToken.

    With `nonce` None the caller must check it, as for a nonce issued before the person is known.
    """
    try:
        claims = _CLAIMS.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadToken("a claim is missing or has the wrong type") from None
    if claims.iss != issuer:
        raise BadToken("its issuer is not the configured one")
    _check_audience(claims, client_id)
    _check_times(claims, at)
    if nonce is not None and not hmac.compare_digest(claims.nonce.encode(), nonce.encode()):
        raise BadToken("its nonce does not belong to this sign-in")
    if access_token is not None and claims.at_hash is not None:
        _check_access_token(claims.at_hash, head.alg, access_token)
    return proven(issuer, claims.sub, claims.email, claims.email_verified, claims.name), claims.nonce


def proven(issuer: str, subject: str, email: object, verified: object, name: object) -> Proven:
    """Return the claims within their limits; raise BadToken for an invalid subject."""
    if not 0 < len(subject) <= 255 or not subject.isprintable():  # OpenID Connect Core 2: 255 ASCII characters
        raise BadToken("its subject is empty, too long or not printable")
    address = email if isinstance(email, str) and 0 < len(email) <= 320 and email.isprintable() else None
    called = name if isinstance(name, str) and is_line(name) else ""
    # Apple and Amazon Cognito send booleans as strings.
    return Proven(issuer, subject, address, verified is True or verified == "true", called.strip()[:120])


def _signer(jwk: dict[str, Any]) -> Signer | None:
    """Build a key from the public members of a JWK; return None if it can't have signed an id token."""
    if jwk.get("use") not in (None, "sig"):
        return None
    makers = {"RSA": _rsa, "EC": _ec, "OKP": _okp}
    kid, alg, kind = jwk.get("kid"), jwk.get("alg"), jwk.get("kty")
    make = makers.get(kind) if isinstance(kind, str) else None
    if make is None or not isinstance(kid, str | None):
        return None
    try:
        made = make(jwk)
    except (JoseError, ValueError, TypeError, KeyError, OverflowError):
        return None
    if made is None:
        return None
    key, algorithms = made
    if alg is not None:
        algorithms &= {alg} if isinstance(alg, str) else set()
    return Signer(kid, algorithms, key) if algorithms else None


def _rsa(jwk: dict[str, Any]) -> tuple[Key, frozenset[str]] | None:
    modulus = int.from_bytes(_octets(jwk["n"]), "big")
    exponent = int.from_bytes(_octets(jwk["e"]), "big")
    if modulus.bit_length() not in RSA_BITS or not 2 < exponent < MAX_EXPONENT:
        return None
    algorithms = frozenset(name for name in ALGORITHMS if name.startswith(("RS", "PS")))
    return RSAKey.import_key({"kty": "RSA", "n": jwk["n"], "e": jwk["e"]}), algorithms


def _ec(jwk: dict[str, Any]) -> tuple[Key, frozenset[str]] | None:
    algorithm = _CURVES.get(jwk["crv"])
    if algorithm is None:
        return None
    key = ECKey.import_key({"kty": "EC", "crv": jwk["crv"], "x": jwk["x"], "y": jwk["y"]})
    return key, frozenset({algorithm})


def _okp(jwk: dict[str, Any]) -> tuple[Key, frozenset[str]] | None:
    if jwk["crv"] != "Ed25519":
        return None
    return OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": jwk["x"]}), frozenset({"EdDSA", "Ed25519"})


def _check_audience(claims: _Claims, client_id: str) -> None:
    audience = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if client_id not in audience:
        raise BadToken("its audience does not contain our client id")
    if claims.azp is not None and claims.azp != client_id:
        raise BadToken("its authorized party (azp) is another client")
    if len(audience) > 1 and claims.azp is None:
        raise BadToken("it has several audiences and no authorized party (azp)")


def _check_times(claims: _Claims, at: datetime) -> None:
    now, leeway = at.timestamp(), LEEWAY.total_seconds()
    if not all(math.isfinite(moment) for moment in (claims.exp, claims.iat, claims.nbf or 0.0)):
        raise BadToken("a time in it is not a number")
    if claims.exp + leeway <= now:
        raise BadToken("it has expired")
    if claims.iat - leeway > now or (claims.nbf or 0.0) - leeway > now:
        raise BadToken("it is not valid yet")


def _check_access_token(at_hash: str, algorithm: str, access_token: str) -> None:
    """Check at_hash: the left half of the access token's hash (OpenID Connect Core 3.1.3.6; Ed25519 uses SHA-512)."""
    made = _HASHES.get(algorithm[-3:], sha512)(access_token.encode()).digest()
    wanted = base64.urlsafe_b64encode(made[: len(made) // 2]).rstrip(b"=")
    if not hmac.compare_digest(at_hash.rstrip("=").encode(), wanted):
        raise BadToken("its at_hash does not match the access token")


def _octets(text: object) -> bytes:
    """Decode base64url without padding (RFC 7515 2); raise ValueError."""
    if not isinstance(text, str) or len(text) > MAX_OCTETS:
        raise ValueError("not base64url")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
