"""The pages that links in system mail lead to, served beside the API."""
