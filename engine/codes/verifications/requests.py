"""Define the requests that send a one-time code."""

from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from engine.base.errors import ErrorType, Refusal
from engine.codes.verifications.rules import MAX_CODE_LENGTH, MIN_CODE_LENGTH
from engine.codes.verifications.types import VerificationRow
from engine.sending.emails.limits import MAX_METADATA, MAX_METADATA_VALUE
from engine.sending.emails.types import AddressText, Name, Slug, Tag

CodeLength = Annotated[int, Meta(ge=MIN_CODE_LENGTH, le=MAX_CODE_LENGTH)]
StreamName = Annotated[Slug | None, Meta(description="Default: transactional")]


class StartRequest(
    Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from", "code_length": "codeLength",
    "idempotency_key": "idempotencyKey"}, kw_only=True,
):  # fmt: skip
    """A verification to start. An optional field that is null is an absent one."""

    to: AddressText
    from_: Annotated[AddressText, Meta(description="The sender, at a verified domain")]
    code_length: Annotated[CodeLength | None, Meta(description="Digits. Default: that of the settings, else 6")] = None
    stream: StreamName = None
    tags: Annotated[list[Tag], Meta(max_length=10)] | None = None
    metadata: (
        Annotated[dict[Name, Annotated[str, Meta(max_length=MAX_METADATA_VALUE)]], Meta(max_length=MAX_METADATA)] | None
    ) = None
    locale: Annotated[
        Annotated[str, Meta(min_length=2, max_length=35, pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$")] | None,
        Meta(
            description="Language of the mail, such as `de` or `pt-BR`. Default, and where texts lack: `en`",
            examples=["de"],
        ),
    ] = None
    link: Annotated[
        bool | None,
        Meta(description=("The email also contains a link to a page that confirms without the code. Default: false")),
    ] = None
    idempotency_key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(description="A start with the same key returns 200 with the first verification, while it is kept"),
    ] = None


class ResendRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Another code for a pending verification."""

    to: Annotated[AddressText, Meta(description="The address of the start: it is not stored")]
    stream: Annotated[Slug | None, Meta(description="Default: that of the start")] = None


class Started(Struct, frozen=True):
    """The answer to a start; `replayed` if its idempotency key had started the verification earlier."""

    row: VerificationRow
    replayed: bool = False


class AlreadyStarted(Refusal):
    """Raised inside the transaction if a parallel start used the same idempotency key."""

    def __init__(self, verification: UUID) -> None:
        super().__init__(ErrorType.CONFLICT, "A verification was started with this idempotencyKey.")
        self.verification = verification
