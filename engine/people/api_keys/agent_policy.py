"""Define what a key lets an agent send: to which recipients, and whether a person must approve. Pure."""

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

from engine.base.errors import invalid
from engine.mail.address import BadAddress, canonical, domain_name, parse_mailbox

Approval = Literal["none", "required"]
MAX_RECIPIENTS: Final = 50  # entries of one key
MAX_RECIPIENT: Final = 320  # characters of one
SENDS: Final = "emails:send"


class AgentPolicy(Struct, frozen=True, kw_only=True):
    """The agent's rules of a key; None for `recipients` allows any, but sends to none at once."""

    recipients: list[str] | None = None
    approval: Approval = "none"

    @property
    def columns(self) -> tuple[list[str] | None, Approval]:
        """Return the values of the columns `agent_recipients` and `agent_approval`."""
        return self.recipients, self.approval


def checked_policy(policy: AgentPolicy, scopes: Iterable[str]) -> AgentPolicy:
    """Return the policy with canonical recipients, sorted without duplicates.

    Raises the 400 for an invalid recipient, and for a scope that could send or change something past the policy.
    """
    for scope in sorted(scopes):
        if scope != SENDS and not scope.endswith(":read"):
            raise invalid("agent", f"A key with `agent` may read and have {SENDS}, but not {scope}. Remove it.")
    if policy.recipients is None:
        return policy
    return AgentPolicy(recipients=sorted({_recipient(one) for one in policy.recipients}), approval=policy.approval)


def _recipient(text: str) -> str:
    given = text.strip()
    try:
        return f"@{domain_name(given[1:])}" if given.startswith("@") else canonical(parse_mailbox(given).address)
    except BadAddress as error:
        raise invalid(
            "agent.recipients",
            f"{text[:100]!r} is neither an address nor a domain such as @example.com: {error}",
        ) from None
