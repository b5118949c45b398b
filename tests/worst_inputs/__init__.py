"""The input that costs each reader of foreign input most, with a bound on its CPU."""
