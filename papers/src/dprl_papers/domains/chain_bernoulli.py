"""The chain whose end pays only with probability 0.2: values are multiplied by 0.2, and returns are far from them.

A trajectory's return says little about its value here: a method that clips residuals to a small interval estimates a
median.
"""

from __future__ import annotations

from dprl_papers.domains.chain import chain_domain

DOMAIN = chain_domain("chain_bernoulli", "Chain, Bernoulli(0.2) reward", success=0.2)
