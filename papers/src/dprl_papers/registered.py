"""What dprl finds by the entry point ``dprl.algorithms``: import strings, so that listing it loads nothing.

A release with one of these writes a statement and no certificate, whatever its noise.
"""

from __future__ import annotations

from dprl.registry import Entry

ALGORITHMS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "first-visit",
            "dprl_papers.baselines.first_visit",
            "first-visit returns from noised counts and sums (tabular; Balle, Gomrokchi and Precup 2016)",
        ),
    )
}
