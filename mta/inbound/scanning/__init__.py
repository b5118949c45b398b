"""Scan received mail: viruses by clamd, a spam score by rspamd or, without it, by the built-in rules."""
