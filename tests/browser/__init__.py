"""Tests that drive the console in a real browser, against a service started as an operator does."""
