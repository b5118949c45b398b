"""Analytics: delivery rates and times, DMARC and TLS reports."""
