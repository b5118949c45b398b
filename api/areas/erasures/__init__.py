"""Erase the data of one recipient."""
