"""The duplicate filter, its fingerprints, and its trial beside an exact one."""
