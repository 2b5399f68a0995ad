"""The layer between stores and Redis: requests and replies as data, tokens, and the drivers that send calls.

It imports no store.
"""
