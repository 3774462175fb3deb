"""Logged trajectories: schema, readers, privacy units."""
