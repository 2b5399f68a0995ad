"""The exact filter has no false positives, and each of its items expires separately."""

from tbloom.exact.aio import AsyncExactFilter
from tbloom.exact.info import ExactInfo
from tbloom.exact.sync import ExactFilter

__all__ = ["AsyncExactFilter", "ExactFilter", "ExactInfo"]
