"""What a release costs: events, accountants, calibration, certificates with their verifier, and the ledger."""
