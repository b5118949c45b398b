"""The types that the hand-written modules use; in the package, the generated module with all types takes this place."""

from typing import Any

PulledEvent = dict[str, Any]
WebhookEvent = dict[str, Any]
EventPage = dict[str, Any]
