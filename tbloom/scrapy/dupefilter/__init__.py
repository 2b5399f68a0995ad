"""The duplicate filter, its fingerprints, and what asks for many requests at once."""
