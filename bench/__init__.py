"""Benchmarks. Each prints the numbers that README quotes."""
