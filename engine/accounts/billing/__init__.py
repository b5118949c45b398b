"""Billing: subscriptions, checkouts, invoices, and the events of payment providers."""
