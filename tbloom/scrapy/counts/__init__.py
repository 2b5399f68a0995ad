"""Exact counts of the distinct URLs and hosts of a fleet."""
