"""What the workers of sites hand on: finished attempts, and deliveries that they could not make."""

from collections.abc import Awaitable, Callable

from engine.flows.sending.settle import Attempt
from mta.outbound.pacer import Pacer
from mta.outbound.prepare import Delivery
from mta.outbound.site import Group
from mta.outbound.tls_report import TlsSession


class Report:
    """What a worker tells the loop: finished attempts, and deliveries it could not make."""

    def __init__(
        self,
        *,
        settle: Callable[[Delivery, Attempt], None],
        hand_back: Callable[[Delivery], None],
        fault: Callable[[Delivery, Exception], None],
        recheck: Callable[[Delivery], Awaitable[None]],
        may_send: Callable[[Delivery], bool],
        tls: Callable[[str, tuple[TlsSession, ...]], None],
        token: Callable[[Pacer, float], Awaitable[bool]],
        left_alone: Callable[[Group, float], None],
    ) -> None:
        self.settle = settle
        self.fault = fault
        self.hand_back = hand_back
        self.recheck = recheck
        self.may_send = may_send
        self.tls = tls
        self.token = token
        self.left_alone = left_alone
