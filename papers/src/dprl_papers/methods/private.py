"""Private value functions of this library, each with its own public defaults."""

from __future__ import annotations

from dprl_papers.harness.algorithm import algorithm

METHODS = (
    algorithm("private-constant", "private constant", "constant", trivial=True),
    algorithm("td", "TD(0)", "td"),
    algorithm("return-regression", "regression on returns", "return-regression"),
    algorithm("adassp", "AdaSSP on returns", "adassp"),
    algorithm("private-lstd", "private LSTD", "lstd"),
    # what the chain's states can do is public: stay, or go on by one; and a reward comes only at the end
    algorithm("noisy-counts", "counts on the known support", "noisy-counts", support="0,1", rewards="terminal"),
    algorithm("first-visit", "first-visit sums", "first-visit"),
    algorithm("doubly-robust", "doubly robust", "doubly-robust"),
    algorithm("recommended", "recommended", "recommended"),
)
