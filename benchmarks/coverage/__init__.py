"""Coverage of the intervals: logs are drawn from known laws and released, and intervals that hold are counted.

``make coverage`` runs every row of :mod:`benchmarks.coverage.rows` and writes ``docs/coverage.md``.
"""
