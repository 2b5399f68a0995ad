"""Leases on items (claim, commit, release), and the sessions that hold them. You can skip this package at first."""
