"""Bytes in, rows stored. Owns the tables and the words that the other packages share."""
