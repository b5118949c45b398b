"""The public status page: states of the installation's components, their history, and incidents."""
