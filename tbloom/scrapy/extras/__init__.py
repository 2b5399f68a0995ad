"""Beside the duplicate filter: distinct counts, an HTTP cache, a trial beside an exact filter, and ``tbloom doctor``."""
