"""Simulators as pure JAX functions, logs that they produce, and people who answer a policy."""
