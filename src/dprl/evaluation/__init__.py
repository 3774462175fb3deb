"""Algorithms that read a log: one file for each, and files for what several of them share."""
