"""tbloom as Scrapy's duplicate filter: ``DUPEFILTER_CLASS = "tbloom.scrapy.DupeFilter"``."""

from tbloom.scrapy.addon import Addon
from tbloom.scrapy.dupefilter import DupeFilter
from tbloom.scrapy.fingerprinter import ScrapyRedisFingerprinter

__all__ = ["Addon", "DupeFilter", "ScrapyRedisFingerprinter"]
