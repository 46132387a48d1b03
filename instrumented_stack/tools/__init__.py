"""Twelve tools that really work, offline. `box.py` lists them; each is a function from text to text."""
