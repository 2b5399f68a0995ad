"""The layer between the stores and Redis: calls and replies as data, tokens, retries, and the drivers that send calls.

It imports no store.
"""
