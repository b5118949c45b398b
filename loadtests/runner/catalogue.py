"""List the scenarios of `ops loadtest` with the accounts and endpoints that each needs and its default load."""

from typing import Final

from msgspec import Struct

MAX_MESSAGES: Final = 1_000_000
SECONDS: Final = 60.0


class Scenario(Struct, frozen=True, kw_only=True):
    """A file in `loadtests/scenarios`, its requirements and its default load."""

    name: str
    file: str
    about: str
    users: int
    rate: float | None = None  # requests a second over all users; None: as fast as answers come
    seconds: float = SECONDS
    max_messages: int = 200_000  # messages
    accounts: int = 1
    readers: int = 0  # live tails, at most five an account
    bystanders: int = 0  # users of classes with a fixed count, beside `users`
    hooks: int = 0  # answering webhook endpoints for each account
    hanging: int = 0  # endpoints that never answer, over all accounts
    stream: str | None = None
    relay: bool = False
    cool_s: float = 0.0  # readers stay this long after the last send
    slow_domains: tuple[str, ...] = ()  # domains whose mail may still wait at the end

    @property
    def needs_own_service(self) -> bool:
        """Return True when the scenario needs accounts or settings that only a separate service has."""
        return bool(self.accounts > 1 or self.readers or self.hooks or self.relay or self.slow_domains or self.stream)


SCENARIOS: Final = {
    one.name: one
    for one in (
        Scenario(name="single", file="single.py", about="single sends, as fast as answers come", users=32),
        Scenario(name="batch", file="batch.py", about="batches of 100, as fast as answers come", users=4),
        Scenario(
            name="attachments", file="attachments.py", about="attachments of 10 KB, 100 KB or 1 MB", users=8,
            max_messages=20_000,
        ),
        Scenario(name="mixed", file="mixed.py", about="sends and reads, as from an application", users=32),
        Scenario(
            name="tails", file="tails.py", about="1,000 live tails and 50 sends a second", users=8, rate=50.0,
            accounts=200, readers=1_000, bystanders=1_000, cool_s=5.0,
        ),
        Scenario(name="relay", file="relay.py", about="SMTP over TLS, pipelined sessions", users=16, relay=True),
        Scenario(
            name="webhooks", file="webhooks.py", about="webhook posts; 100 endpoints never answer", users=8,
            rate=100.0, accounts=10, hooks=2, hanging=100,
        ),
        Scenario(
            name="giant-domain", file="giant_domain.py", about="90% of the mail to one domain", users=16, rate=200.0,
        ),
        Scenario(
            name="slow-mx", file="slow_mx.py", about="three of ten domains become slow or refuse",
            users=16, rate=100.0, slow_domains=("slow-0.test", "slow-1.test", "slow-2.test"),
        ),
        Scenario(
            name="broadcast", file="broadcast.py", about="single sends, and a burst of batches on another stream",
            users=8, rate=50.0, bystanders=2, stream="news", max_messages=50_000,
        ),
    )
}  # fmt: skip
