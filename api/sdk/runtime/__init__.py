"""The hand-written modules of the Python client; `api.sdk.package` packs them with the generated ones."""
