"""The chain whose end pays with probability 0.2 only: the same values times 0.2, and returns that are far from them.

A trajectory's return says little of its value here: what clips a residual to a small interval estimates a median.
"""

from __future__ import annotations

from dprl_papers.domains.chain import chain_domain

DOMAIN = chain_domain("chain_bernoulli", "Chain, Bernoulli(0.2) reward", success=0.2)
