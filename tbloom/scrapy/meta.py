"""The keys of a request's meta that belong to tbloom."""

#: Number of newest slices in which the request counts as seen.
WITHIN = "tbloom_within"
#: For how many slices the request, or the page that answers it, counts as seen; None: for the whole window.
KEEP = "tbloom_keep"
#: How long the request counts as seen in an exact store (seconds).
TTL = "tbloom_ttl"
#: The token of a request that is queued as a page (``claims/token.py``).
CLAIM = "tbloom_claim"
