"""Leases on items: claim, commit, release, and the sessions that hold them. Skipped on a first reading."""
