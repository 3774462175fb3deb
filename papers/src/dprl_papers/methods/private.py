"""Private value functions of dprl, each with its own public defaults."""

from __future__ import annotations

from dprl_papers.harness.algorithm import algorithm

METHODS = (
    algorithm("private-constant", "private constant", "constant", trivial=True),
    algorithm("td", "TD(0)", "td"),
    algorithm("return-regression", "regression on returns", "return-regression"),
    algorithm("adassp", "AdaSSP on returns", "adassp"),
    algorithm("private-lstd", "private LSTD", "lstd"),
    # the chain's possible transitions are public: stay, or advance by one; and only the end pays a reward
    algorithm("noisy-counts", "counts on the known support", "noisy-counts", support="0,1", rewards="terminal"),
    algorithm("first-visit", "first-visit sums", "first-visit"),
    algorithm("doubly-robust", "doubly robust", "doubly-robust"),
    algorithm("recommended", "recommended", "recommended"),
)
