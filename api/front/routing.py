"""Decide by what a request names its account: path, credential, cookie, query or body. Pure.

The front asks for the cell of the first key that is known. A request that names no account goes to the cell that the
browser was at last (a cookie that only chooses which cell answers, and gives no rights), else to any.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs
from uuid import UUID

import msgspec
from msgspec import Struct

from api.http import auth
from engine.audience.contacts import confirmations
from engine.base import ids
from engine.base.errors import Refusal
from engine.base.secrets import Pepper
from engine.cells.claims import HINT_COOKIE
from engine.cells.whose import Key, KeyKind
from engine.codes.verifications.rules import id_of_link
from engine.mail import unsubscribe_token
from engine.people.identity import rules as identity
from engine.people.identity.types import SignInStep
from engine.people.people.rules import checked_email
from engine.people.sessions import rules as sessions
from engine.people.tokens import rules as tokens
from engine.receiving.mta_sts import rules as mta_sts

MAX_BODY: Final = 256 * 1024  # that is read to find the account; more than any of these requests needs
MAX_FIELDS: Final = 50  # of a query
MAX_IDS: Final = 8  # in the event of a payment provider

_PAYMENT_ID: Final = re.compile(rb"\b(?:chk|inv|acc)_[0-9a-z]{26}\b")
_IMAGE: Final = re.compile(r"/images/([0-9a-f]{64})\.[a-z]{3,4}")
_PAYMENTS: Final = re.compile(r"/v1/(?:billing/[a-z]+/webhook|webhooks/payprov/[a-z]+)")
_POLICY: Final = "/.well-known/mta-sts.txt"
_ALLOWED: Final = "/.well-known/waybill/tls-allowed"
_CHALLENGE: Final = "/.well-known/acme-challenge/"
_POSTMARK_KEY: Final = b"x-postmark-server-token"


class Head(Struct, frozen=True):
    """The parts of a request's head that can name an account."""

    method: str
    path: str
    query: str
    headers: Mapping[bytes, bytes]  # lower-case names; the last value of each, cookies joined


class Address(Struct, frozen=True):
    """The address of a person, whose cell the directory has; `new`: a person of this request may be new."""

    email: str
    new: bool = False


Named = Key | Address
OfBody = Callable[["RequestRouter", Mapping[str, Any]], Named | None]


class RequestRouter:
    """The rules, with the keys under which tokens are checked or digested."""

    def __init__(self, pepper: Pepper) -> None:
        self._pepper = pepper
        self._links = unsubscribe_token.key_of(pepper)
        self._confirmations = confirmations.key_of(pepper)

    def of_head(self, head: Head) -> list[Named]:
        """Return what the head names, the most specific first."""
        named = [self._of_path(head), self._of_query(head)]
        if not self.reads_body(head):  # signing in does not depend on who is signed in
            named += [self._of_key(head), self._of_session(head)]
        return [one for one in named if one is not None]

    def reads_body(self, head: Head) -> bool:
        """Return True if the account stands in the body."""
        return head.method == "POST" and (head.path in _BODIES or _PAYMENTS.fullmatch(head.path) is not None)

    def of_body(self, head: Head, body: bytes) -> Iterator[Named]:
        """Yield what the body names. Malformed bodies name nothing: the cell that gets them refuses them."""
        if _PAYMENTS.fullmatch(head.path):
            for found in list(dict.fromkeys(_PAYMENT_ID.findall(body)))[:MAX_IDS]:
                if (key := _payment(found.decode())) is not None:
                    yield key
        elif (read := _BODIES.get(head.path)) is not None:
            fields = _fields(body)
            if fields is not None and (named := read(self, fields)) is not None:
                yield named
        for after in (self._of_key(head), self._of_session(head)):
            if after is not None:
                yield after

    def hint(self, head: Head) -> str | None:
        """Return the cell that the browser was at last, as its cookie says."""
        return _cookie(head, HINT_COOKIE)

    def _of_path(self, head: Head) -> Key | None:
        path = head.path
        if path.startswith("/u/"):
            return _uuid(KeyKind.UNSUBSCRIBE_LINK, unsubscribe_token.link_of(self._links, path[3:]))
        if path.startswith("/c/"):
            return _uuid(KeyKind.CONFIRMATION, unsubscribe_token.link_of(self._confirmations, path[3:]))
        if path.startswith("/v/"):
            return _uuid(KeyKind.VERIFICATION, id_of_link(path[3:]))
        if path.startswith("/verification-logos/") and (token := path.rpartition("/")[2]).isalnum():
            return Key(KeyKind.LOGO, token)
        if (image := _IMAGE.fullmatch(path)) is not None:
            return Key(KeyKind.IMAGE, image[1])
        if path == _POLICY:
            domain = mta_sts.served_domain(head.headers.get(b"host", b"").decode("latin-1"))
            return None if domain is None else Key(KeyKind.POLICY_HOST, domain)
        if path.startswith(_CHALLENGE):
            return Key(KeyKind.ACME_CHALLENGE, path.removeprefix(_CHALLENGE))
        return None

    def _of_query(self, head: Head) -> Key | None:
        if head.path == _ALLOWED:
            domain = mta_sts.served_domain(_parameter(head, "domain").lower())
            return None if domain is None else Key(KeyKind.POLICY_HOST, domain)
        if head.path == "/v1/auth/idp/callback":
            return self.step(SignInStep.STATE, _parameter(head, "state"))
        return None

    def _of_key(self, head: Head) -> Key | None:
        postmark = head.headers.get(_POSTMARK_KEY)
        given = head.headers.get(b"authorization") if postmark is None else b"Bearer " + postmark
        key = None if given is None else auth.bearer(given.decode("latin-1"))
        return None if key is None else Key(KeyKind.API_KEY, key.key_id)

    def _of_session(self, head: Head) -> Key | None:
        secret = _cookie(head, sessions.COOKIE)
        if secret is None or not sessions.well_formed(secret):
            return None
        digests = sessions.digests_of(self._pepper, secret)
        return Key(KeyKind.SESSION, ",".join(one.hex() for one in digests))

    def step(self, kind: SignInStep, token: str) -> Key | None:
        """Return the key of a step of a sign-in with the identity provider."""
        return _uuid(KeyKind.IDENTITY_STEP, identity.step_of(self._pepper, kind, token))


def _token(kind: KeyKind) -> OfBody:
    def read(_router: RequestRouter, fields: Mapping[str, Any]) -> Key | None:
        token = fields.get("token")
        return (
            Key(kind, tokens.digest_of(token).hex()) if isinstance(token, str) and tokens.well_formed(token) else None
        )

    return read


def _address(*, new: bool) -> OfBody:
    def read(_router: RequestRouter, fields: Mapping[str, Any]) -> Address | None:
        email = fields.get("email")
        try:
            return Address(checked_email(email), new) if isinstance(email, str) else None
        except Refusal:  # the cell's answer says why
            return None

    return read


def _step(kind: SignInStep, field: str) -> OfBody:
    def read(router: RequestRouter, fields: Mapping[str, Any]) -> Key | None:
        token = fields.get(field)
        return router.step(kind, token) if isinstance(token, str) else None

    return read


def _one_tap(router: RequestRouter, fields: Mapping[str, Any]) -> Key | None:
    """Return the step whose nonce is in an id token; the cell verifies the token."""
    claims = _fields(_unpadded(str(fields.get("credential")).partition(".")[2].partition(".")[0]))
    nonce = None if claims is None else claims.get("nonce")
    return router.step(SignInStep.NONCE, nonce) if isinstance(nonce, str) else None


def _passkey(_router: RequestRouter, fields: Mapping[str, Any]) -> Key | None:
    credential = fields.get("credential")
    raw = _unpadded(str(credential.get("id"))) if isinstance(credential, dict) else b""
    return Key(KeyKind.PASSKEY, raw.hex()) if raw else None


_PERSON_TOKEN: Final = _token(KeyKind.PERSON_TOKEN)
_BODIES: Final[Mapping[str, OfBody]] = {
    "/v1/auth/signup": _address(new=True),
    "/v1/auth/signup/end": _PERSON_TOKEN,
    "/v1/auth/login": _address(new=False),
    "/v1/auth/link": _PERSON_TOKEN,
    "/v1/auth/verify-email": _PERSON_TOKEN,
    "/v1/auth/email/change/confirm": _PERSON_TOKEN,
    "/v1/auth/password/forgot": _address(new=False),
    "/v1/auth/password/reset": _PERSON_TOKEN,
    "/v1/auth/password/reset/others": _PERSON_TOKEN,
    "/v1/auth/idp/totp": _step(SignInStep.TICKET, "ticket"),
    "/v1/auth/idp/mobile/exchange": _step(SignInStep.APP_CODE, "code"),
    "/v1/auth/idp/one-tap": _one_tap,
    "/v1/auth/passkeys/login/verify": _passkey,
    "/v1/team/invites/accept": _token(KeyKind.INVITE),
}


def _fields(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _unpadded(text: str) -> bytes:
    """Decode base64url without padding; empty if it is none."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""


def _uuid(kind: KeyKind, found: UUID | None) -> Key | None:
    return None if found is None else Key(kind, str(found))


def _payment(public_id: str) -> Key | None:
    kind = ids.Kind(public_id.partition("_")[0])
    try:
        found = ids.parse_id(kind, public_id)
    except ids.WrongId:
        return None
    return Key(KeyKind.ACCOUNT if kind is ids.Kind.ACCOUNT else KeyKind.PAYMENT, str(found))


def _parameter(head: Head, name: str) -> str:
    """Return the only value of a query parameter; empty for none, or for several, which the cell refuses."""
    try:
        values = parse_qs(head.query, max_num_fields=MAX_FIELDS).get(name, [])
    except ValueError:
        return ""
    return values[0] if len(values) == 1 else ""


def _cookie(head: Head, name: str) -> str | None:
    """Return the value of a cookie, the first of several, as the cells do (RFC 6265 5.4)."""
    for pair in head.headers.get(b"cookie", b"").decode("latin-1").split(";"):
        given, equals, value = pair.strip().partition("=")
        if equals and given == name:
            return value.strip('"')
    return None
