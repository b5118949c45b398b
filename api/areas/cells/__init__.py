"""Answer the fronts and the other cells of an installation; customers have no access."""
