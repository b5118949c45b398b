"""The Python client for the guides that use it."""

from tests.sdk.conftest import document, package_folder, packed, waybill_client

__all__ = ["document", "package_folder", "packed", "waybill_client"]
