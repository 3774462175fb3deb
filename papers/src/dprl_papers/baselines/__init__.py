"""Baselines: methods that serve only for comparison; none of them is part of dprl itself."""
