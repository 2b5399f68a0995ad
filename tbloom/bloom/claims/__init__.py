"""Leases on items: claim, commit, release, and the sessions that hold them. Skip this package on a first reading."""
