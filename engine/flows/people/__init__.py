"""Flows of people: sign-up, sign-in, sessions, second factors, passkeys, identity providers, profiles."""
