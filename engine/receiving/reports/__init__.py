"""Keep the reports that other mail systems send: bounces, complaints, DMARC and TLS reports."""
