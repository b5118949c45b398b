"""Flows: operations that span several areas, such as accepting a message, signing in, or erasing an account."""
