"""``dprl check``: a sound algorithm passes, one that leaks is found, and a file that is none is one sentence."""

from __future__ import annotations

import pytest

SOUND = '''
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.protocols import Attack


@dataclass(frozen=True, kw_only=True)
class Level(ValueFunctionConfig):
    """The mean return in every feature."""

    algorithm: ClassVar[str] = "level"

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        return (Query("level", facts.features.size, 1.0),)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Any:
        return Program(stages, facts.features.size)


@dataclass(frozen=True)
class Program:
    stages: tuple[Stage, ...]
    size: int
    columns = ("returns",)

    def init(self) -> Any:
        return jnp.zeros(self.size)

    def contribution(self, stage: int, state: Any, block: Any) -> Any:
        mine = jnp.sum(block.weight_return, axis=1, keepdims=True)
        return jnp.broadcast_to(mine, (len(mine), self.size))

    def update(self, stage: int, state: Any, noisy: Any, step: Any) -> Any:
        return noisy

    def finish(self, stage: int, state: Any) -> Any:
        return state

    def answer(self, state: Any) -> Any:
        return state


ALGORITHM = Algorithm(Level, settings={"only": Setting(Level(discount=0.9))}, attacks=(Attack(trials=1000),))
'''
# every unit's vector is the largest of all: no clip bounds what one unit moves the sum by
LEAKING = SOUND.replace("jnp.broadcast_to(mine,", "jnp.broadcast_to(jnp.max(mine),")
BROKEN = SOUND.replace("jnp.sum(block.weight_return", "jnp.sum(block.nothing_of_the_kind")


@pytest.fixture
def checked(dprl, tmp_path):
    """``dprl check FILE`` of a file with this content."""

    def run(content: str, *arguments: str):
        path = tmp_path / "mine.py"
        path.write_text(content)
        return dprl("check", path, "--trials", "1000", *arguments)

    return run


def test_a_sound_algorithm_passes_and_nothing_is_promised(checked):
    found = checked(SOUND, "--json").json()
    assert found["violations"] == []
    (variant,) = found["neighbours"]
    assert variant["pairs"] > 10
    assert 0.3 < variant["largest_ratio"] <= 1.0 + 1e-9
    assert [a["verdict"] for a in found["audits"]] == ["not violated"]


def test_one_that_leaks_is_found(checked):
    outcome = checked(LEAKING)
    assert outcome.code == 1
    assert "VIOLATED: only: " in outcome.out
    assert "more than the sensitivity" in outcome.out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = 1", "defines no ALGORITHM"),
        ("1 / 0", "raised ZeroDivisionError"),
        ("import dprl.learning.functional_q as q\nALGORITHM = q.ALGORITHM", "evaluates no log"),
        (BROKEN, "The algorithm raised AttributeError"),
    ],
)
def test_what_cannot_be_checked_is_one_sentence(checked, content, words):
    checked(content).refused(words)
