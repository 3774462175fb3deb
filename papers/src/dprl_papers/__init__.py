"""Experiments: simulated domains with known values, the methods compared on them, and the figures of papers."""
