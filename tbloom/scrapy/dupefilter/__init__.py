"""The duplicate filter and its fingerprints, and what asks for the requests of a response in one call."""
