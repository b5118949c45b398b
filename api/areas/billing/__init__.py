"""Billing: `/v1/billing`, invoices, and the events of payment providers."""
