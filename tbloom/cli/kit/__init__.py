"""What the commands share: progress, tables, numbers, files."""
