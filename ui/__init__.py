"""What people touch: the command line and the pages. Read-only but for the commands that say otherwise."""
