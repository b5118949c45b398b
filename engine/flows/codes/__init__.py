"""Start, resend and check one-time codes, whose mail is accepted like any message."""
