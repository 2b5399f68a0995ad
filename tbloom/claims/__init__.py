"""Leases on items (claim, commit, release), the sessions that hold them, and ``TimeBloom``: the filter with its claims."""
