"""Learned schedules of steps and noise (paper 002)."""
