"""The public status page of the installation."""
