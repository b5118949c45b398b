"""Queue and compose mail of the service itself, in the transaction of the change that it reports."""
