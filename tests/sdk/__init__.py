"""The clients of the API: generated code, requests, tails, webhooks."""
