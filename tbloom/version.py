"""The version, in a module that the build can read without importing the package, and the tested versions of libraries."""

__version__ = "1.0.0"

#: The oldest Scrapy that setup.cfg allows.
OLDEST_SCRAPY = (2, 14)
#: The newest version (major, minor) of each library that the tests have passed with. A newer one may be used.
NEWEST_TESTED = {"scrapy": (2, 19), "redis": (8, 1), "click": (8, 5), "mmh3": (5, 3)}
