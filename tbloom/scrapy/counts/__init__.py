"""Distinct URLs and hosts of a fleet, counted exactly."""
