"""Run the service on this host: supervisor, embedded servers, processes, first start, virtual environment."""
