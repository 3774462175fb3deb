"""The cost of a release: events, accountants, calibration, certificates with their verifier, and the ledger."""
