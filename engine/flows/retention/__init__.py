"""Deletion of records: expired ones by plan, and everything of an account whose deletion is due."""
