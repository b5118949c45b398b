"""Serve MTA-STS policies by the Host of the request, and tell proxies for which hosts to get certificates.

Senders fetch `https://mta-sts.<domain>/.well-known/mta-sts.txt` (RFC 8461 3.3); a proxy in front ends TLS. A proxy that
gets certificates on demand asks `/.well-known/waybill/tls-allowed?domain=…` first.
"""

from typing import Final
from urllib.parse import urlsplit

import asyncpg
import falcon
import falcon.asgi

from api.http.decode import query_parameter
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.receiving.certificates import store as certificates
from engine.receiving.mta_sts import rules, store
from engine.receiving.mta_sts.service import read_slot
from engine.store.database_errors import DatabaseUnavailable

TLS_ALLOWED_PATH: Final = "/.well-known/waybill/tls-allowed"
MAX_HOST: Final = 253


class PolicyHost:
    """Answers requests for the policy of the domain that Host names."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._mail_hosts = (settings.mail_host.lower(),)

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer with the policy, or 404 if the host has none. The media type is RFC 8461's."""
        domain = rules.served_domain(request.get_header("Host") or "")
        response.content_type = "text/plain"
        try:
            async with read_slot(request.remote_addr):
                policy = None if domain is None else await store.SERVED.first(self._pool, domain)
        except (DatabaseUnavailable, OSError):
            response.status, response.text = falcon.HTTP_503, "The policy can't be read just now.\n"
            return
        if policy is None:
            response.status, response.text = falcon.HTTP_404, "This host has no MTA-STS policy.\n"
            return
        response.text = rules.policy_text(policy, self._mail_hosts)

    on_head = on_get


def _asked(request: falcon.asgi.Request) -> str:
    try:
        return query_parameter(request, "domain") or ""
    except Refusal:  # not a query of a proxy
        return ""


class AcmeChallenge:
    """Answers the HTTP-01 challenges of the certificate authority (RFC 8555 8.3)."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response, token: str) -> None:
        """Answer with the key authorization of a challenge that this service asked for, else 404."""
        response.content_type = "application/octet-stream"
        try:
            async with read_slot(request.remote_addr):
                rows = await certificates.READ_CHALLENGE.records(self._pool, token)
        except (DatabaseUnavailable, OSError):
            response.status = falcon.HTTP_503
            return
        if rows:
            response.text = rows[0]["key_authorization"]
        else:
            response.status = falcon.HTTP_404


class TlsAllowed:
    """Answers a proxy's question whether it may get a certificate for a host: 200 for yes, 404 for no."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._own = {urlsplit(settings.public_url).hostname, settings.mail_host.lower()}

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Allow the service's own hosts, and policy hosts whose CNAME leads here."""
        host = _asked(request)[: MAX_HOST + 1].lower().removesuffix(".")
        response.content_type = "text/plain"
        try:
            async with read_slot(request.remote_addr):
                allowed = host in self._own or await self._has_policy(host)
        except (DatabaseUnavailable, OSError):
            response.status, response.text = falcon.HTTP_503, "unknown\n"
            return
        response.status, response.text = (falcon.HTTP_200, "yes\n") if allowed else (falcon.HTTP_404, "no\n")

    async def _has_policy(self, host: str) -> bool:
        domain = rules.served_domain(host)
        if domain is None or len(host) > MAX_HOST:
            return False
        rows = await store.FINDINGS.records(self._pool, domain)
        return any(rules.decoded(row["findings"]).cname == "ok" for row in rows)
