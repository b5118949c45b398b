"""The client that the testing modules use; in the package, the generated module takes this place."""

from types import TracebackType
from typing import Any, Self


class Waybill:
    """The synchronous client."""

    def __init__(self, **_settings: Any) -> None: ...

    def __getattr__(self, name: str) -> Any: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def close(self) -> None:
        """Close its connections."""
