"""The reply about this installation."""

from typing import Annotated

from msgspec import Meta, Struct


class SignUpTerms(Struct, rename="camel"):
    """The terms of sign-up: open to everybody or by invitation only, with or without a solved challenge."""

    open: bool
    challenge_required: bool


class SignInProvider(Struct, rename="camel"):
    """The OpenID Connect provider that people may sign in with."""

    name: str
    issuer: str
    client_id: Annotated[str, Meta(description="For the provider's one-tap button, with a nonce of this API")]


class Submission(Struct, rename="camel"):
    """The server that takes mail over SMTP, with an API key as the password."""

    host: str
    starttls_port: int
    tls_port: int
    open: Annotated[
        bool,
        Meta(description="Programs on the service's machine send to `starttlsPort` without TLS and login (local mode)"),
    ]


class IncomingServer(Struct, rename="camel"):
    """The server that takes mail from other mail servers."""

    host: str
    port: int


class Instance(Struct, rename="camel"):
    """Facts about this installation that are the same for everybody."""

    name: str
    version: str
    public_url: str
    mail_host: Annotated[str, Meta(description="Test recipients are at `simulator.` and this host")]
    local: Annotated[bool, Meta(description="All mail goes to the local sink, see `GET /v1/local/sink`")]
    sign_up: SignUpTerms
    identity_provider: Annotated[SignInProvider | None, Meta(description="null where none is configured")]
    passkeys: Annotated[bool, Meta(description="Whether passkeys can work with the public URL")]
    submission: Annotated[Submission | None, Meta(description="null where no server accepts mail over SMTP")]
    incoming: Annotated[
        IncomingServer | None, Meta(description=("null where no server accepts mail from other servers"))
    ]
