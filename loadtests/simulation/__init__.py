"""Run a whole service and its surroundings in one process, in an order that a seed decides (`ops simulate`)."""
