"""The version, where the build can read it without importing the package, and those of libraries that the tests know."""

__version__ = "1.0.0"

#: The newest version of each library, as major and minor, that the tests have passed with. A newer one is no fault.
NEWEST_TESTED = {"scrapy": (2, 19), "redis": (8, 1), "click": (8, 5), "mmh3": (5, 3)}
