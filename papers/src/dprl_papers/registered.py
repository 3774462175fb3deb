"""What dprl finds by the entry point ``dprl.algorithms``: import strings, so that listing it loads nothing.

A release with one of these writes a statement and no certificate, whatever its noise.
"""

from __future__ import annotations

from dprl.registry import entries

ALGORITHMS = entries(
    "unit of the log",
    "dprl_papers.baselines",
    (
        "first-visit",
        "first_visit",
        "first-visit returns from noised counts and sums (tabular; Balle, Gomrokchi and Precup 2016)",
    ),
    ("dp-sgda", "primal_dual_sgd", "plain primal-dual steps, of networks too: a baseline of paper 000"),
    (
        "dp-gld",
        "langevin",
        "gradient Langevin dynamics, primal-dual (Wang, Chen and Xu 2019): a baseline of paper 000",
    ),
    (
        "dp-srm",
        "recursive_momentum",
        "stochastic recursive momentum, primal-dual (Wang et al. 2019): a baseline of paper 000",
    ),
)
