"""Requests and replies of verifications."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from engine.codes.verifications.branding import MAX_BRAND
from engine.codes.verifications.logo import MAX_BASE64
from engine.codes.verifications.requests import CodeLength
from engine.codes.verifications.rules import MAX_CODE_TEXT
from engine.codes.verifications.types import VerificationStatus


class Verification(Struct, rename="camel", kw_only=True):
    """A verification. `messageId` is the message of the latest code; the address is not stored.

    All of its codes share `expiresAt` and the attempts. It can be read for 48 hours after `finishedAt`.
    """

    id: str
    status: VerificationStatus
    attempts_remaining: int
    code_length: int
    message_id: str
    codes_sent: int
    created_at: str
    expires_at: str
    finished_at: str | None


class CodeCheck(Struct, forbid_unknown_fields=True):
    """A code to check. Blanks, hyphens and the script of its digits do not matter."""

    code: Annotated[str, Meta(min_length=1, max_length=MAX_CODE_TEXT)]


class CodeChecked(Struct, rename="camel", kw_only=True):
    """The result of a check: `approved`, `pending` (a wrong code), or `exhausted` (a wrong code, and the last try)."""

    id: str
    status: VerificationStatus
    attempts_remaining: int


class LogoUpload(Struct, forbid_unknown_fields=True):
    """A logo: base64 of a PNG, JPEG or WebP image of at most 512 KB and 2,000 pixels a side, with one frame."""

    content: Annotated[str, Meta(min_length=1, max_length=MAX_BASE64)]


class BrandingChange(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The branding to change: an omitted field stays, null clears it."""

    brand_name: Annotated[str, Meta(max_length=MAX_BRAND)] | UnsetType | None = UNSET
    code_length: CodeLength | UnsetType | None = UNSET
    logo: LogoUpload | UnsetType | None = UNSET


class ShownLogo(Struct, rename="camel", kw_only=True):
    """A logo as mails show it; every upload gets a new `url`."""

    url: str
    content_type: str
    width: int
    height: int
    size_bytes: int


class Branding(Struct, rename="camel", kw_only=True):
    """The branding of the built-in mail; null where nothing was set."""

    brand_name: str | None
    code_length: int | None
    logo: ShownLogo | None
