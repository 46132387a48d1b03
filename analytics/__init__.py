"""Rows in, findings out. Each analyzer is `load` (the only SQL) and `find` (pure)."""
