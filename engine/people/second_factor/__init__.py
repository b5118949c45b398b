"""Store second factors: authenticator apps and recovery codes."""
