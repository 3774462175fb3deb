"""Engines that compute the sums over a log in parts. This file imports nothing, so that a worker starts with little."""
