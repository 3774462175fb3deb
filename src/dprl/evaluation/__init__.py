"""Algorithms that read a log: one file for each."""
