"""The variants at equal guarantee, (0.45, 1e-4)

Where: Figure 2(b) with certificates
"""

from __future__ import annotations

from dprl_papers.paper_001_functional_q.figures.figure_2a_equal import draw as draw

VALUES = (10, 30, 100, 300, 1000)
QUICK = (30, 100)
EPSILON = (0.45,)
