"""Simulators as pure JAX functions, logs of them, and people who answer."""
