"""The version, where the build can read it without importing the package."""

__version__ = "1.0.0"
