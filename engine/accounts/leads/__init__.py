"""Store enquiries from the operator's contact form."""
