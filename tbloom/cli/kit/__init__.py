"""Parts that commands share: progress, tables, numbers, files."""
