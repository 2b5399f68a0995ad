"""The commands: a file each, or a folder for one with parts of its own."""
