"""Deletion of records: old ones by plan, all of an account's when its deletion is due."""
