"""The shared part of both clients; the generated class adds the groups of operations. The other is derived."""

from types import TracebackType
from typing import Self

import httpx

from .async_transport import DEFAULT_TIMEOUT_S, AsyncTransport
from .retry import DEFAULT_RETRIES
from .values import setting


class AsyncBaseClient:
    """One client: its connection pool, address and key."""

    def __init__(
        self,
        *,
        api_key: str | None,
        base_url: str | None,
        timeout: float = DEFAULT_TIMEOUT_S,
        max_retries: int = DEFAULT_RETRIES,
        http_client: httpx.AsyncClient | None = None,
        user_agent: str = "waybill-client",
    ) -> None:
        self._owns_http = http_client is None
        self._transport = AsyncTransport(
            api_key=setting(api_key, "api_key", "WAYBILL_API_KEY"),
            base_url=setting(base_url, "base_url", "WAYBILL_URL"),
            timeout=timeout,
            max_retries=max_retries,
            http_client=http_client,
            user_agent=user_agent,
        )

    async def aclose(self) -> None:
        """Close the connections, unless the caller passed `http_client`."""
        if self._owns_http:
            await self._transport.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._transport.base_url!r})"
