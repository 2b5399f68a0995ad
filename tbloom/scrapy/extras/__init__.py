"""Beside the duplicate filter: distinct counts, an HTTP cache, a trial beside an exact filter, and what ``tbloom doctor`` and ``push`` do."""
