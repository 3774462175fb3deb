"""A small release of the default starts at once: nothing is compiled, and nothing is imported that it does not use."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RELEASE = """
import sys
import jax
found = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: found.append(name))
import dprl
bounds = dict(units=500, horizon=1, reward=[0, 1], observation=[[0, 1]], actions=2, max_importance_ratio=2)
release = dprl.evaluate({log!r}, ["always:0", "always:1"], dprl.Budget(epsilon=1.0, delta=1e-6), bounds=bounds)
print(len(release.values), "pandas" in sys.modules, sum("backend_compile" in name for name in found))
jax.jit(lambda x: x + 1)(2)
print(sum("backend_compile" in name for name in found))
"""


def test_the_default_compiles_nothing_and_imports_no_pandas(tmp_path):
    rng, log = np.random.default_rng(3), tmp_path / "log.parquet"
    columns = {
        "observation_0": rng.uniform(size=500),
        "action": rng.integers(0, 2, 500),
        "reward": rng.uniform(size=500),
    }
    pq.write_table(pa.table(columns | {"behavior_prob": np.full(500, 0.5)}), log)
    script = [sys.executable, "-c", RELEASE.format(log=str(log))]
    assert subprocess.run(script, capture_output=True, text=True, check=True).stdout.split() == ["2", "False", "0", "1"]
