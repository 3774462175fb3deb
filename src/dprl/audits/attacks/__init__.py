"""The strongest attacks known on dprl's algorithms, on simulated neighbours."""
