"""Scrapy's HTTP cache in a page store."""
