"""Coverage of the intervals: logs from laws that are known, released through the public API, and how often they hold.

``make coverage`` runs every row of :mod:`benchmarks.coverage.rows` and writes ``docs/coverage.md``.
"""
