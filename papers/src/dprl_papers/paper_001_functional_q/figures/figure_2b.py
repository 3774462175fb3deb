"""Figure 2(b). The same, ε = 0.45

Where: Section 4, Figure 2(b); claims of (0.45, 1e-4)

Statement: Especially, on the higher privacy regime ε = 0.45, both the baseline methods do not improve over the
training due to the large noise level needed.
"""

from __future__ import annotations

from dprl_papers.paper_001_functional_q.figures.figure_2a import draw as draw

EPSILON = (0.45,)
