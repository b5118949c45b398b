"""Talk to the identity provider: fetch its metadata and keys, redeem codes, query userinfo.

Every answer is limited in time and size, and only permitted addresses are connected to. Metadata and keys are cached
for an hour. A token that no cached key verifies makes them reload, at most once a minute, so that a provider may rotate
keys at any time and invalid tokens do not cause endless requests.
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

from engine.base.local_mode import may_dial_private
from engine.base.netaddr import is_public
from engine.base.settings import Settings
from engine.people.identity import id_tokens
from engine.people.identity.id_tokens import BadToken, Signer
from engine.people.identity.types import Config, Proven, Tokens
from engine.store.http_client import GuardedResolver, any_address, resolver_for, socket_factory
from engine.store.resolver import Resolver

KEPT_S: Final = 3_600.0  # metadata and keys
REFRESH_S: Final = 60.0  # between two reloads because of an unknown key
AFTER_FAILURE_S: Final = 5.0  # after a failure, fail immediately for this time
FETCH_S: Final = 5.0
MAX_BYTES: Final = 256 * 1024
MAX_AT_ONCE: Final = 16  # concurrent requests of one process
DISCOVERY: Final = "/.well-known/openid-configuration"

_log = structlog.get_logger("identity")


class ProviderUnavailable(Exception):  # noqa: N818 - named for what it is about
    """Report that the provider can't be used now: unreachable, slow, a forbidden address, or an invalid answer."""


class ProviderDeclined(Exception):  # noqa: N818 - named for what it is about
    """Report that the provider refused the authorization code."""


class Description(Struct, frozen=True):
    """The provider's metadata (OpenID Connect Discovery 3) as far as it is used."""

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
    """The metadata, keys and connections of one provider in one process. Use it in one event loop."""

    def __init__(
        self,
        config: Config,
        resolver: Resolver,
        *,
        may_dial: Callable[[str], bool] = is_public,
        timeout_s: float = FETCH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`may_dial` returns True for addresses (canonical text) that may be connected to."""
        self.config = config
        self._resolver = resolver
        self._may_dial = may_dial
        self._timeout_s = timeout_s
        self._clock = clock
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._loading = asyncio.Lock()
        self._description: Description | None = None
        self._keys: tuple[Signer, ...] = ()
        self._known_until = 0.0
        self._fetched_at = 0.0
        self._failed_until = 0.0
        self._tls: ssl.SSLContext | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> "IdentityProvider | None":
        """Return the provider of the settings, or None if none is configured."""
        if settings.idp_issuer is None or settings.idp_client_id is None or settings.idp_client_secret is None:
            return None
        config = Config(settings.idp_issuer, settings.idp_client_id, settings.idp_client_secret, settings.idp_scopes)
        every = may_dial_private(settings, settings.allow_private_idp)
        return cls(config, resolver_for(settings), may_dial=any_address if every else is_public)

    async def close(self) -> None:
        """Cancel running DNS lookups."""
        await self._resolver.close()

    async def describe(self) -> Description:
        """Return the provider's metadata, at most an hour old; raise ProviderUnavailable."""
        if self._description is None or self._clock() >= self._known_until:
            await self._load(self._fetched_at)
        assert self._description is not None
        return self._description

    async def redeem(self, code: str, verifier: str, redirect: str) -> Tokens:
        """Redeem a code for tokens (RFC 6749 4.1.3, RFC 7636 4.5); raise ProviderDeclined or ProviderUnavailable."""
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
            raise ProviderUnavailable("the response of its token endpoint can't be read") from None

    async def check(
        self, token: str, *, nonce: str | None, at: datetime, access_token: str | None = None
    ) -> tuple[Proven, str]:
        """Return what an id token proves at `at`, and its nonce, which is checked if `nonce` is given.

        Raises BadToken, or ProviderUnavailable if the provider's keys can't be loaded.
        """
        description = await self.describe()
        head = id_tokens.head_of(token, description.id_token_signing_alg_values_supported)
        payload = id_tokens.payload_of(token, head, self._keys)
        if payload is None and await self._reload():
            payload = id_tokens.payload_of(token, head, self._keys)
        if payload is None:
            raise BadToken("no key of the provider verifies its signature")
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
        """Return the claims completed by userinfo (OpenID Connect Core 5.3), where some providers put the address.

        Raises BadToken if userinfo names another subject, or ProviderUnavailable.
        """
        description = await self.describe()
        if description.userinfo_endpoint is None:
            return proven
        headers = {"Authorization": f"Bearer {access_token}"}
        answer = await self._fetch("GET", description.userinfo_endpoint, headers)
        if answer.status != 200:
            raise ProviderUnavailable(f"its userinfo endpoint returned {answer.status}")
        try:
            claims = msgspec.json.decode(answer.body, type=_UserInfo)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return proven  # such as a signed answer, which we do not request
        if claims.sub != proven.subject:
            raise BadToken("userinfo names another subject")
        return id_tokens.proven(proven.issuer, claims.sub, claims.email, claims.email_verified, claims.name)

    async def _reload(self) -> bool:
        """Reload the keys unless that was done within the last minute; return True if it was done now."""
        seen = self._fetched_at
        if self._clock() - seen < REFRESH_S:
            return False
        await self._load(seen)
        return True

    async def _load(self, seen: float) -> None:
        """Load metadata and keys, one at a time, unless they were loaded after `seen`."""
        async with self._loading:
            if self._fetched_at > seen:
                return
            if self._clock() < self._failed_until:
                raise ProviderUnavailable("the previous request failed a moment ago")
            try:
                description = await self._discover()
                keys = await self._fetch_keys(description)
            except ProviderUnavailable as away:
                self._failed_until = self._clock() + AFTER_FAILURE_S
                _log.warning("identity provider unavailable", issuer=self.config.issuer, reason=str(away))
                raise
            now = self._clock()
            self._description, self._keys = description, keys
            self._fetched_at, self._known_until = now, now + KEPT_S

    async def _discover(self) -> Description:
        answer = await self._fetch("GET", self.config.issuer.rstrip("/") + DISCOVERY)
        if answer.status != 200:
            raise ProviderUnavailable(f"its metadata endpoint returned {answer.status}")
        try:
            found = msgspec.json.decode(answer.body, type=Description)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ProviderUnavailable("its metadata can't be read") from None
        if found.issuer != self.config.issuer:  # OpenID Connect Discovery 4.3
            raise ProviderUnavailable("its metadata names another issuer")
        plain = urlsplit(self.config.issuer).scheme == "http"
        ends = (found.authorization_endpoint, found.token_endpoint, found.jwks_uri, found.userinfo_endpoint)
        if not all(end is None or _usable(end, plain=plain) for end in ends):
            raise ProviderUnavailable("its metadata names an endpoint that is not an https:// URL")
        return found

    async def _fetch_keys(self, description: Description) -> tuple[Signer, ...]:
        answer = await self._fetch("GET", description.jwks_uri)
        if answer.status != 200:
            raise ProviderUnavailable(f"its key endpoint returned {answer.status}")
        try:
            return await asyncio.to_thread(id_tokens.keys_in, answer.body)
        except ValueError:
            raise ProviderUnavailable("its keys can't be read") from None

    async def _fetch(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> _ProviderAnswer:
        """Send one request; the timeout covers waiting for a free slot, DNS and the complete answer."""
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._slots,
                self._session() as session,
                session.request(method, url, headers=headers, data=body, allow_redirects=False) as response,
            ):
                return _ProviderAnswer(response.status, await _read_all(response.content))
        except TimeoutError:
            raise ProviderUnavailable(f"no response within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderUnavailable(f"it can't be reached: {type(error).__name__}") from None

    def _session(self) -> aiohttp.ClientSession:
        if self._tls is None:  # on first use: loading CA certificates takes 20 ms
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
            headers={"Accept": "application/json", "User-Agent": "Waybill"},  # some refuse requests without one
            skip_auto_headers=("Accept-Encoding",),
        )


async def _read_all(stream: aiohttp.StreamReader) -> bytes:
    """Read the complete answer; raise ProviderUnavailable if it is too long."""
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(MAX_BYTES + 1 - size):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise ProviderUnavailable(f"its response is longer than {MAX_BYTES:,} bytes")
    return b"".join(parts)


def _usable(url: str, *, plain: bool) -> bool:
    """Return True for an absolute URL without a fragment, with TLS unless the issuer uses http."""
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
    """Return the Basic header; RFC 6749 2.3.1 requires form-encoding both parts first."""
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _refusal(answer: _ProviderAnswer) -> ProviderUnavailable | ProviderDeclined:
    """Return the exception for a refused code (RFC 6749 5.2); `invalid_client` is an operator error."""
    try:
        error = msgspec.json.decode(answer.body, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        error = None
    if error in {"invalid_client", "unauthorized_client"} or answer.status == 401:
        _log.error("identity provider refused the client id or secret", status=answer.status)
        return ProviderUnavailable(
            "it refused our client id or secret; check WAYBILL_IDP_CLIENT_ID and WAYBILL_IDP_CLIENT_SECRET"
        )
    if 400 <= answer.status < 500 and answer.status != 429:
        return ProviderDeclined(error if isinstance(error, str) and error.isidentifier() else "a code")
    return ProviderUnavailable(f"its token endpoint returned {answer.status}")
