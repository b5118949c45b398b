"""The causes of waiting times in replies about messages and about analytics."""

from typing import Annotated

from msgspec import Meta, Struct


class WaitCauses(Struct, rename="camel", kw_only=True):
    """Milliseconds by cause; they sum to the whole time."""

    schedule: Annotated[int, Meta(ge=0, description="Until its own `scheduledAt`", examples=[0])] = 0
    queue: Annotated[int, Meta(ge=0, description="Due, until Waybill took it up", examples=[9])] = 0
    site_limits: Annotated[
        int, Meta(ge=0, description="A pause, pace or connection limit of the receiving servers", examples=[0])
    ] = 0
    other_accounts: Annotated[
        int, Meta(ge=0, description="Connections to these servers were busy with other accounts' mail", examples=[120])
    ] = 0
    own_mail: Annotated[
        int, Meta(ge=0, description="Connections to these servers were busy with your own mail", examples=[0])
    ] = 0
    connection: Annotated[
        int, Meta(ge=0, description="Looking up the servers and connecting: DNS, TCP, TLS, EHLO", examples=[210])
    ] = 0
    transaction: Annotated[int, Meta(ge=0, description="The SMTP transaction itself", examples=[85])] = 0
    retry: Annotated[int, Meta(ge=0, description="After a deferral, until the next attempt was due", examples=[0])] = 0
