"""Experiments: simulated domains with known values, methods that are compared on them, and figures of papers."""
