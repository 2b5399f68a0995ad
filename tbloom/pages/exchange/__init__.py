"""Import and export of a store's pages."""
