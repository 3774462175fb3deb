"""The front desk: checks a request, charges the ledger, runs an algorithm, certifies and writes what comes out."""
