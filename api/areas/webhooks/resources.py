"""Webhook endpoints."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
