"""The HTTP cache in a page store."""
