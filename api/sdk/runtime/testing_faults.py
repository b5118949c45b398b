"""An HTTP transport that loses requests or responses on demand."""

import httpx


class FaultyTransport(httpx.HTTPTransport):
    """The usual transport; the next request to a path can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self._failing: dict[str, bool] = {}

    def fail_next(self, path: str, *, after_commit: bool) -> None:
        """Refuse the next request to a path with 503, or carry it out and lose its response."""
        self._failing[path] = after_commit

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, unless it is to fail."""
        after_commit = self._failing.pop(request.url.path, None)
        if after_commit is None:
            return super().handle_request(request)
        if not after_commit:
            return httpx.Response(503, json={"error": {"type": "unavailable", "message": "A test refused it."}})
        super().handle_request(request).read()
        raise httpx.ReadError("a test lost the response", request=request)
