"""Links in the service's own mails, as they arrive in the sink of a running service."""

import re

from loadtests.kit.service import Service
from tests.harness.service import arrived, octets, parsed, until


async def token_mailed(service: Service, address: str, page: str) -> str:
    """Return the token of the newest link to that page in the mailbox of the address, once it has come."""
    found: list[str] = []

    async def come() -> bool:
        nonlocal found
        texts = [parsed(octets(service, entry)).get_body(("plain",)) for entry in arrived(service, address)]
        pattern = rf"{re.escape(service.base_url)}/{page}#token=([\w-]{{43}})(?=\s)"
        found = [token for text in texts if text for token in re.findall(pattern, text.get_content())]
        return bool(found)

    await until(come, why=lambda: f"no link to {page} for {address}")
    return found[-1]
