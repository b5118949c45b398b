"""The hand-written modules of the Python client; `api.sdk.python_package` packs them with the generated ones."""
