"""tbloom as Scrapy's duplicate filter: ``DUPEFILTER_CLASS = "tbloom.scrapy.DupeFilter"``; and distinct counts."""

from tbloom.scrapy.addon import Addon
from tbloom.scrapy.counts import DistinctCounts
from tbloom.scrapy.dupefilter import DupeFilter
from tbloom.scrapy.fingerprinter import ScrapyRedisFingerprinter

__all__ = ["Addon", "DistinctCounts", "DupeFilter", "ScrapyRedisFingerprinter"]
