"""What the workers of sites hand on: finished attempts, and deliveries that they could not make."""

from collections.abc import Awaitable, Callable

from engine.flows.settle import Attempt
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites.pacer import Pacer
from mta.outbound.sites.site import SiteGroup
from mta.outbound.tls.report_counts import TlsSession


class Report:
    """What a worker tells the loop: finished attempts, and deliveries it could not make."""

    def __init__(
        self,
        *,
        settle: Callable[[ActiveDelivery, Attempt], None],
        hand_back: Callable[[ActiveDelivery], None],
        fault: Callable[[ActiveDelivery, Exception], None],
        recheck: Callable[[ActiveDelivery], Awaitable[None]],
        may_send: Callable[[ActiveDelivery], bool],
        tls: Callable[[str, tuple[TlsSession, ...]], None],
        token: Callable[[Pacer, float], Awaitable[bool]],
        left_alone: Callable[[SiteGroup, float], None],
    ) -> None:
        self.settle = settle
        self.fault = fault
        self.hand_back = hand_back
        self.recheck = recheck
        self.may_send = may_send
        self.tls = tls
        self.token = token
        self.left_alone = left_alone
