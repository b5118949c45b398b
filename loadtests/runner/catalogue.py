"""List the scenarios of `ops loadtest` with the accounts and endpoints that each needs and its default load."""

from typing import Final

from msgspec import Struct

SECONDS: Final = 60.0


class Scenario(Struct, frozen=True, kw_only=True):
    """Users of `loadtests/scenarios/locustfile.py`, their requirements and their default load."""

    name: str
    about: str
    classes: tuple[str, ...]  # of Locust users
    users: int
    rate: float | None = None  # requests a second over all users; None: as fast as answers come
    seconds: float = SECONDS
    max_messages: int = 200_000
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


_ONE: Final = ("SingleSendUser",)
SCENARIOS: Final = {
    one.name: one
    for one in (
        Scenario(name="single", about="single sends, as fast as answers come", classes=_ONE, users=32),
        Scenario(name="batch", about="batches of 100, as fast as answers come", classes=("BatchUser",), users=4),
        Scenario(name="attachments", about="attachments of 10 KB, 100 KB or 1 MB", classes=("AttachmentUser",), users=8,
                 max_messages=20_000),
        Scenario(name="mixed", about="sends and reads, as from an application", classes=("MixedUser",), users=32),
        Scenario(name="tails", about="1,000 live tails and 50 sends a second", classes=("TailUser", *_ONE), users=8,
                 rate=50.0, accounts=200, readers=1_000, bystanders=1_000, cool_s=5.0),
        Scenario(name="relay", about="SMTP over TLS, pipelined sessions", classes=("RelaySendUser",), users=16,
                 relay=True),
        Scenario(name="webhooks", about="webhook posts; 100 endpoints never answer", classes=_ONE, users=8, rate=100.0,
                 accounts=10, hooks=2, hanging=100),
        Scenario(name="giant-domain", about="90% of the mail to one domain", classes=("GiantDomainUser",), users=16,
                 rate=200.0),
        Scenario(name="slow-mx", about="three of ten domains become slow or refuse", classes=("SlowMxUser",), users=16,
                 rate=100.0, slow_domains=("slow-0.test", "slow-1.test", "slow-2.test")),
        Scenario(name="broadcast", about="single sends, and a burst of batches on another stream",
                 classes=("NewsletterUser", "SteadySendUser"), users=8, rate=50.0, bystanders=2, stream="news",
                 max_messages=50_000),
    )
}  # fmt: skip
