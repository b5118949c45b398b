"""Mail transfer: delivery over pooled SMTP connections."""
