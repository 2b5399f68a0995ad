"""The experiments of the papers behind tbloom: ``make paper``."""
