"""The front desk: check a request, charge the ledger, run an algorithm, then certify and write its results."""
