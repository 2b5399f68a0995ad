"""The exact store: no false positives, and an expiry of its own for each item."""

from tbloom.exact.aio import AsyncExactFilter
from tbloom.exact.info import ExactInfo
from tbloom.exact.sync import ExactFilter

__all__ = ["AsyncExactFilter", "ExactFilter", "ExactInfo"]
