"""The identity provider as one process knows it: its description, its keys, and what it gives for a code.

Everything it serves is taken within a bounded time and size, from addresses that may be dialled. Its description and
keys are kept for an hour; a token that no known key fits has them fetched again, at most once a minute, so that a
provider may change its keys at any time and nobody can have us ask it without end.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
import structlog
from msgspec import Struct

from engine.areas.identity import id_tokens
from engine.areas.identity.id_tokens import BadToken, Signer
from engine.areas.identity.types import Config, Proven, Tokens
from engine.base.netaddr import is_public
from engine.base.settings import Settings
from engine.store.http_client import GuardedResolver, any_address, resolver_for, socket_factory
from engine.store.resolver import Resolver

KEPT_S: Final = 3_600.0  # the description and the keys
REFRESH_S: Final = 60.0  # between two looks for a key that is not among the known ones
AFTER_FAILURE_S: Final = 5.0  # whoever comes within this after a failure hears of it at once
FETCH_S: Final = 5.0
MAX_BYTES: Final = 256 * 1024
MAX_AT_ONCE: Final = 16  # conversations with the provider that one process has
DISCOVERY: Final = "/.well-known/openid-configuration"

_log = structlog.get_logger("identity")


class ProviderUnavailable(Exception):  # noqa: N818 - named for what it is about
    """The provider can't be asked now: unreachable, slow, not to be dialled, talking nonsense, or refusing us."""


class ProviderDeclined(Exception):  # noqa: N818 - named for what it is about
    """The provider does not take the code."""


class Description(Struct, frozen=True):
    """What the provider says of itself (OpenID Connect Discovery 3), as far as it is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    id_token_signing_alg_values_supported: tuple[str, ...] = ("RS256",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False  # RFC 9207


class _ProviderAnswer(Struct, frozen=True):
    status: int
    body: bytes


class _Refusal(Struct):
    error: Any = None


class _UserInfo(Struct):
    sub: str
    email: Any = None
    email_verified: Any = None
    name: Any = None


class IdentityProvider:
    """One provider, for one process; use within one event loop and `close` it there."""

    def __init__(
        self,
        config: Config,
        resolver: Resolver,
        *,
        may_dial: Callable[[str], bool] = is_public,
        timeout_s: float = FETCH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`may_dial` judges addresses in canonical text."""
        self.config = config
        self._resolver = resolver
        self._may_dial = may_dial
        self._timeout_s = timeout_s
        self._clock = clock
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._learning = asyncio.Lock()
        self._description: Description | None = None
        self._keys: tuple[Signer, ...] = ()
        self._known_until = 0.0
        self._fetched_at = 0.0
        self._failed_until = 0.0
        self._tls: ssl.SSLContext | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> "IdentityProvider | None":
        """The one of the settings; None where there is none."""
        if settings.idp_issuer is None or settings.idp_client_id is None or settings.idp_client_secret is None:
            return None
        config = Config(settings.idp_issuer, settings.idp_client_id, settings.idp_client_secret, settings.idp_scopes)
        allowed = settings.allow_private_idp
        every = settings.delivery == "local" if allowed is None else allowed
        return cls(config, resolver_for(settings), may_dial=any_address if every else is_public)

    async def close(self) -> None:
        """End look-ups that are under way."""
        await self._resolver.close()

    async def describe(self) -> Description:
        """The provider's description, at most an hour old; raises ProviderUnavailable."""
        if self._description is None or self._clock() >= self._known_until:
            await self._learn(self._fetched_at)
        assert self._description is not None
        return self._description

    async def redeem(self, code: str, verifier: str, redirect: str) -> Tokens:
        """The tokens for a code (RFC 6749 4.1.3, RFC 7636 4.5); raises ProviderDeclined or ProviderUnavailable."""
        description = await self.describe()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        methods = description.token_endpoint_auth_methods_supported
        if "client_secret_post" in methods and "client_secret_basic" not in methods:
            form |= {"client_id": self.config.client_id, "client_secret": self.config.client_secret}
        else:
            headers["Authorization"] = _basic(self.config.client_id, self.config.client_secret)
        body = "&".join(f"{name}={quote(value, safe='')}" for name, value in form.items()).encode()
        answer = await self._fetch("POST", description.token_endpoint, headers, body)
        if answer.status != 200:
            raise _refusal(answer)
        try:
            return msgspec.json.decode(answer.body, type=Tokens)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ProviderUnavailable("its answer to a code can't be read") from None

    async def check(
        self, token: str, *, nonce: str | None, at: datetime, access_token: str | None = None
    ) -> tuple[Proven, str]:
        """What an id token proves at `at`, and its nonce, which is judged here where `nonce` is given.

        Raises BadToken, or ProviderUnavailable while the provider's keys can't be had.
        """
        description = await self.describe()
        head = id_tokens.head_of(token, description.id_token_signing_alg_values_supported)
        payload = id_tokens.payload_of(token, head, self._keys)
        if payload is None and await self._look_again():
            payload = id_tokens.payload_of(token, head, self._keys)
        if payload is None:
            raise BadToken("no key of the provider has signed it")
        return id_tokens.check(
            payload,
            head,
            issuer=self.config.issuer,
            client_id=self.config.client_id,
            nonce=nonce,
            at=at,
            access_token=access_token,
        )

    async def ask_about(self, proven: Proven, access_token: str) -> Proven:
        """The same person with what the provider's userinfo adds (OpenID Connect Core 5.3): some keep the address
        out of their id tokens. Raises BadToken where it speaks of somebody else, or ProviderUnavailable.
        """
        description = await self.describe()
        if description.userinfo_endpoint is None:
            return proven
        headers = {"Authorization": f"Bearer {access_token}"}
        answer = await self._fetch("GET", description.userinfo_endpoint, headers)
        if answer.status != 200:
            raise ProviderUnavailable(f"its userinfo answers {answer.status}")
        try:
            told = msgspec.json.decode(answer.body, type=_UserInfo)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return proven  # such as a signed answer, which we do not ask for
        if told.sub != proven.subject:
            raise BadToken("userinfo speaks of somebody else")
        return id_tokens.proven(proven.issuer, told.sub, told.email, told.email_verified, told.name)

    async def _look_again(self) -> bool:
        """Fetch the keys again, unless that was done within the last minute; whether they are others' now."""
        seen = self._fetched_at
        if self._clock() - seen < REFRESH_S:
            return False
        await self._learn(seen)
        return True

    async def _learn(self, seen: float) -> None:
        """Fetch description and keys, unless somebody has since they were last seen; one at a time."""
        async with self._learning:
            if self._fetched_at > seen:
                return
            if self._clock() < self._failed_until:
                raise ProviderUnavailable("it could not be asked a moment ago")
            try:
                description = await self._discover()
                keys = await self._fetch_keys(description)
            except ProviderUnavailable as away:
                self._failed_until = self._clock() + AFTER_FAILURE_S
                _log.warning("provider away", issuer=self.config.issuer, reason=str(away))
                raise
            now = self._clock()
            self._description, self._keys = description, keys
            self._fetched_at, self._known_until = now, now + KEPT_S

    async def _discover(self) -> Description:
        answer = await self._fetch("GET", self.config.issuer.rstrip("/") + DISCOVERY)
        if answer.status != 200:
            raise ProviderUnavailable(f"its description answers {answer.status}")
        try:
            found = msgspec.json.decode(answer.body, type=Description)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ProviderUnavailable("its description can't be read") from None
        if found.issuer != self.config.issuer:  # OpenID Connect Discovery 4.3
            raise ProviderUnavailable("its description is another issuer's")
        plain = urlsplit(self.config.issuer).scheme == "http"
        ends = (found.authorization_endpoint, found.token_endpoint, found.jwks_uri, found.userinfo_endpoint)
        if not all(end is None or _usable(end, plain=plain) for end in ends):
            raise ProviderUnavailable("its description names an endpoint that is no https:// URL")
        return found

    async def _fetch_keys(self, description: Description) -> tuple[Signer, ...]:
        answer = await self._fetch("GET", description.jwks_uri)
        if answer.status != 200:
            raise ProviderUnavailable(f"its keys answer {answer.status}")
        try:
            return await asyncio.to_thread(id_tokens.keys_in, answer.body)
        except ValueError:
            raise ProviderUnavailable("its keys can't be read") from None

    async def _fetch(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> _ProviderAnswer:
        """One request; the time covers waiting for a free place, DNS, and the last octet."""
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._slots,
                self._session() as session,
                session.request(method, url, headers=headers, data=body, allow_redirects=False) as response,
            ):
                return _ProviderAnswer(response.status, await _whole(response.content))
        except TimeoutError:
            raise ProviderUnavailable(f"no answer within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderUnavailable(f"it can't be reached: {type(error).__name__}") from None

    def _session(self) -> aiohttp.ClientSession:
        if self._tls is None:  # on first use: loading authorities costs 20 ms
            self._tls = ssl.create_default_context()
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(self._resolver, self._may_dial),
            use_dns_cache=False,  # the resolver has its own
            socket_factory=socket_factory(self._may_dial),
            ssl=self._tls,
            force_close=True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers={"Accept": "application/json", "User-Agent": "Waybill"},  # some refuse whoever names nothing
            skip_auto_headers=("Accept-Encoding",),
        )


async def _whole(stream: aiohttp.StreamReader) -> bytes:
    """All of an answer; raises ProviderUnavailable above the bound."""
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(MAX_BYTES + 1 - size):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise ProviderUnavailable(f"its answer exceeds {MAX_BYTES:,} octets")
    return b"".join(parts)


def _usable(url: str, *, plain: bool) -> bool:
    """An absolute URL without a fragment, by TLS unless the issuer itself does without."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ({"https", "http"} if plain else {"https"})
            and bool(parts.hostname)
            and not parts.fragment
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        return False


def _basic(client_id: str, secret: str) -> str:
    """RFC 6749 2.3.1: both are form-encoded before they are joined."""
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _refusal(answer: _ProviderAnswer) -> ProviderUnavailable | ProviderDeclined:
    """What a refused code means (RFC 6749 5.2): `invalid_client` is our operator's fault, not the person's."""
    try:
        error = msgspec.json.decode(answer.body, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        error = None
    if error in {"invalid_client", "unauthorized_client"} or answer.status == 401:
        _log.error("provider refuses this service's client id or secret", status=answer.status)
        return ProviderUnavailable("it refuses our client id or secret")
    if 400 <= answer.status < 500 and answer.status != 429:
        return ProviderDeclined(error if isinstance(error, str) and error.isidentifier() else "a code")
    return ProviderUnavailable(f"it answers {answer.status} to a code")
