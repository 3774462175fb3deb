"""Simulators as pure JAX functions, simulated logs, and the environments and people that a policy is learned from."""
