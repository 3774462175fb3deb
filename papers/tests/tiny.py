"""A plugin with a chain of six states and two quick methods, and a specification of one small figure on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dprl_papers.harness.plugin import Plugin
from dprl_papers.harness.reproduce import Request, make_request
from dprl_papers.harness.spec import Paper

PLUGIN = '''
import numpy as np

from dprl_papers.domains.chain import Chain
from dprl_papers.harness.domain import Domain, Truth
from dprl_papers.domains.chain import draw_log
from dprl_papers.harness.method import Method
from dprl.mechanisms.noise import SeededNoise
from dprl.policies import UniformPolicy
from dprl.bounds import Bounds

CHAIN = Chain(length=6, horizon=60)
POLICY = UniformPolicy(1)


def moments(features):
    found = CHAIN.mspbe()
    phi = features(np.arange(5.0)[:, None])
    return phi.T @ found.A @ phi, phi.T @ found.b, phi.T @ found.C @ phi


DOMAIN = Domain(
    name="tiny",
    label="Tiny chain",
    discount=0.99,
    features="tabular",
    public=Bounds(units=1, horizon=60, reward=(0.0, 1.0), observation=((0.0, 4.0),), actions=1,
                  return_range=(0.0, 1.0)),
    target_policy=POLICY,
    behavior=POLICY,
    simulate=lambda bounds, seed: draw_log(CHAIN, bounds, seed),
    true_values=lambda: Truth(np.arange(5.0)[:, None], CHAIN.values(), np.full(5, 0.2), np.zeros(5)),
    mean_reward=0.2,
    exact_moments=moments,
)


def mean_reward(problem, key):
    """Values from the data and from noise: what a private method does, without the privacy."""
    noise = np.asarray(SeededNoise(key).gaussian(0, 5, 2.0**20)) / 2.0**20
    return problem.log.reward.mean() + 0.01 * noise


METHODS = (
    Method(name="mean-reward", label="mean reward", guarantee="none", values=mean_reward),
    Method(
        name="mine",
        label="mine",
        guarantee="verified",
        weights=lambda problem, key: problem.log.reward.mean() * problem.features.constant(),
    ),
)
'''

SPEC = """
number = "004"
title = "A paper"
authors = "Somebody"
year = 2019
summary = "What it is about."
trials = 4
quick_trials = 2

[[logs]]
domain = "tiny"
units = 40
quick = 20
batch = 2

[[figures]]
name = "1"
title = "Figure 1"
where = "Section 7"
statement = "Ours is better by < an order of magnitude."
domains = ["tiny"]
values = [10, 40]
quick = [10]
methods = ["zero", "public-constant", "lstd", "mine", "mean-reward"]
  [[figures.claims]]
  words = "LSTD is better than zero."
  kind = "ratio"
  method = "lstd"
  other = "zero"
  metric = "rmse"
  at_least = 2.0
  [[figures.claims]]
  words = "Zero is good."
  kind = "below"
  method = "zero"
  metric = "rmse/range"
  at_most = 0.001
  ours = true
  [[figures.claims]]
  words = "Zero does not change."
  kind = "spread"
  method = "zero"
  at_most = 1.0

[[figures]]
name = "2"
title = "Figure 2"
where = "Appendix"
domains = ["tiny"]
x = "epsilon"
values = [0.1, 1.0]
units = [40]
metric = "rmse"
methods = ["zero", "lstd", "mine"]

[[figures]]
name = "3"
title = "Figure 3"
where = "Appendix"
domains = ["tiny"]
x = "domain"
units = [10, 40]
epsilon = [0.1]
metric = "rmse/range"
methods = ["zero", "public-constant", "mine"]
  [[figures.claims]]
  words = "Mine is better than zero at 40."
  kind = "ratio"
  method = "mine"
  other = "zero"
  metric = "rmse"
  at = [40]
  at_least = 1.0
"""


def plugin_file(folder: Path) -> Path:
    path = folder / "tiny_plugin.py"
    path.write_text(PLUGIN)
    return path


def tiny_request(paper: Paper, plugin: Plugin, **options: Any) -> Request:
    """The figures of the specification, with the plugin's methods.

    The domain has a place in the specification: the plugin's own figure is for domains that have none.
    """
    request = make_request(replace(paper, logs=()), plugin=replace(plugin, units=(10.0,)), **options)
    return replace(request, paper=paper, figures=tuple(f for f in request.figures if f.name != "tiny"))
