"""Algorithms in experiments: their layouts and step sizes give what the algorithm itself gives."""

from __future__ import annotations

from dataclasses import asdict, replace

import jax
import numpy as np
import pytest
from papers.tests.tiny import plugin_file

from dprl.accounting.budget import Budget
from dprl.engine.loop import run
from dprl.evaluation.plan import program_for
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.harness import problem as problem_module
from dprl_papers.harness.algorithm import algorithm
from dprl_papers.harness.plugin import load_plugin
from dprl_papers.harness.problem import Logs, Setting, Trials

SEEDS = (3, 4)
KEYS = np.stack([np.asarray(SeededNoise.from_seed(s).key) for s in SEEDS])
METHOD = algorithm("m", "m", "gpope", steps=8, clip_norm=0.2, start="zero", project=False)


@pytest.fixture(scope="module")
def domain(tmp_path_factory):
    return load_plugin(plugin_file(tmp_path_factory.mktemp("plugin"))).domain


def trials(domain, **options):
    setting = Setting(domain=domain, units=30, budget=Budget(3.0, 1e-5), **options)
    return Trials(setting=setting, seeds=SEEDS, logs=Logs(domain, 40, SEEDS))


def test_it_is_the_algorithm(domain, monkeypatch):
    """Against the exact mechanism, trial by trial; and with rows that are not shared."""
    given = trials(domain, tuned=0.7)
    found = METHOD.answer(given, KEYS)
    setting = given.setting
    config = METHOD.configured(setting).replace(step_size=0.7)  # type: ignore[misc]
    program = program_for(config, setting.bounds, setting.features, setting.budget)
    single = jax.jit(lambda key, data: run(program, SeededNoise(key), data)[1])
    for i, key in enumerate(KEYS):
        rows = given.logs.padded(i, 30)
        data = jax.tree.map(jax.numpy.asarray, rows)
        theta = np.asarray(single(key, data), dtype=np.float64)
        np.testing.assert_allclose(found[i], 0.5 * setting.features.constant() + 0.5 * theta, atol=1e-5)
    monkeypatch.setattr(problem_module, "MAX_SHARED", 1)
    assert not trials(domain).shared
    np.testing.assert_allclose(METHOD.answer(trials(domain, tuned=0.7), KEYS), found, atol=1e-5)


def test_a_factor_of_the_step_size(domain):
    """Of a tuned one, of one that the algorithm chooses, and in the configuration itself: the same."""
    once = METHOD.answer(trials(domain, tuned=0.35, factor=2.0), KEYS)
    np.testing.assert_allclose(once, METHOD.answer(trials(domain, tuned=0.7), KEYS), atol=1e-6)
    setting = trials(domain).setting
    config = METHOD.configured(setting)  # type: ignore[misc]
    chosen = program_for(config, setting.bounds, setting.features, setting.budget)
    by_rule = METHOD.answer(trials(domain, factor=3.0), KEYS)
    tuned = METHOD.answer(trials(domain, tuned=3.0 * chosen.config.step_size), KEYS)  # type: ignore[attr-defined]
    np.testing.assert_allclose(by_rule, tuned, atol=1e-5)
    assert np.abs(by_rule - once).max() > 1e-3


def test_a_guarantee_is_the_budget_unless_it_says_otherwise(domain):
    setting = trials(domain).setting
    assert asdict(METHOD.guarantees(setting)) | {"words": ""} == {
        "status": "verified", "claimed": 3.0, "true": 3.0, "delta": 1e-5, "words": "",
    }  # fmt: skip
    assert replace(METHOD, guarantee="none").guarantees(setting).true is None


def test_the_version_follows_the_algorithm(monkeypatch):
    from dprl_papers.harness import versions

    before = versions.fingerprint(METHOD.files())
    imported = versions.imported
    (file,) = METHOD.sources
    other = versions.module_file("dprl.evaluation.td")
    monkeypatch.setattr(versions, "imported", lambda path: (*imported(path), other) if path == file else imported(path))
    assert versions.fingerprint(METHOD.files()) != before


def test_the_version_follows_the_code_and_not_its_words(tmp_path):
    from dprl_papers.harness.versions import fingerprint

    file = tmp_path / "own.py"
    texts = ('"""One."""\nx = 1\n', '"""Two."""\n\nx = 1  # one\n', '"""One."""\nx = 2\n')
    found = [fingerprint([file]) for text in texts if file.write_text(text)]
    assert found[0] == found[1] != found[2]


def test_what_a_plugin_calls_verified_is_unreviewed(tmp_path):
    """But dprl's own algorithms, with options of the plugin's, are what they are."""
    path = plugin_file(tmp_path)
    own = 'METHODS += (algorithm("own", "own", "td", steps=3),)\n'
    path.write_text(f"from dprl_papers.harness.algorithm import algorithm\n{path.read_text()}\n{own}")
    found = {method.name: method.guarantee for method in load_plugin(path).methods}
    assert found == {"mean-reward": "none", "mine": "unreviewed", "own": "verified"}
