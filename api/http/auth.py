"""The API key of a request."""

from engine.areas.api_keys import rules


def bearer(header: str | None) -> rules.NewKey | None:
    """The key of an Authorization header: scheme in any case, surrounding white space tolerated."""
    if header is None:
        return None
    parts = header.split(None, 1)
    if len(parts) != 2 or parts[0].lower() != "bearer":
        return None
    return rules.parse(parts[1].strip())
