"""Leases on items: claim, commit, release, and the sessions that hold them. Skip it on a first reading."""
