"""Policies and Q-functions that are learned from people and from private rewards."""
