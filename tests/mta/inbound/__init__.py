"""Tests of the MX."""
