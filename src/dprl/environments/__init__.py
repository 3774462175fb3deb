"""Simulators as pure JAX functions, and logs of them."""

from dprl.environments.acrobot import Acrobot
from dprl.environments.cart_pole import CartPole
from dprl.environments.chain import Chain, Mspbe
from dprl.environments.gymnasium_adapter import rollout_gymnasium
from dprl.environments.hiv import HIV
from dprl.environments.interval_walk import IntervalWalk
from dprl.environments.learning_source import HostSource, open_environment
from dprl.environments.mountain_car import MountainCar
from dprl.environments.rollout import environment_bounds, rollout, write_log

__all__ = [
    "HIV",
    "Acrobot",
    "CartPole",
    "Chain",
    "HostSource",
    "IntervalWalk",
    "MountainCar",
    "Mspbe",
    "environment_bounds",
    "open_environment",
    "rollout",
    "rollout_gymnasium",
    "write_log",
]
