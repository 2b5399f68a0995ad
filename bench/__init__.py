"""The benchmarks: ``make bench``."""
