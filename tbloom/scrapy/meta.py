"""The keys of a request's meta that belong to tbloom."""

#: Number of newest slices in which the request counts as seen.
WITHIN = "tbloom_within"
#: How long the request counts as seen in an exact store (seconds).
TTL = "tbloom_ttl"
#: The claim that the request carries: ``[session, number, fingerprint, ...]``.
CLAIM = "tbloom_claim"
