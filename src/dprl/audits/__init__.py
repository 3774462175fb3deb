"""Attacks on guarantees: empirical lower bounds on epsilon, and record and replay of what enters a mechanism.

The modules at the top of this room take callables, canaries (:class:`dprl.protocols.Canary`) and registry entries. What
is special to one kind of algorithm stands in the folders ``conformance`` and ``attacks``.
"""
