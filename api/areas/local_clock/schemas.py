"""Requests and replies about the clock of local mode."""

from typing import Annotated

from msgspec import Meta, Struct

MAX_WAIT_S = 600

Wait = Annotated[
    int,
    Meta(ge=1, le=MAX_WAIT_S, description=("Seconds after which the response is 409, with the work that is still due")),
]


class ClockMove(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """How far to move the clock: by `advance`, or to the time `to`. Give one of them."""

    advance: (
        Annotated[
            str, Meta(max_length=40, description="A duration: numbers with `s`, `m`, `h`, `d` or `w`, as in `1d12h`")
        ]
        | None
    ) = None
    to: Annotated[str, Meta(max_length=40, description="ISO 8601 with a time zone")] | None = None
    timeout_s: Wait = 60


class Settling(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """How long to wait."""

    timeout_s: Wait = 60


class Clock(Struct, rename="camel"):
    """The two clocks of the installation. Service time decides what is due, expired or a new day."""

    service_time: str
    machine_time: str
    ahead_s: float
