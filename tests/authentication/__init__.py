"""Tests of the authentication of received mail."""
