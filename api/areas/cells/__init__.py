"""What cells and fronts of one installation ask one another; customers have no access."""
