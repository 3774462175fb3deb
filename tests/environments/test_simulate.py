"""``dprl simulate`` as a function: arguments in, two files and one line out."""

from __future__ import annotations

import tomllib

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dprl.bounds import Bounds
from dprl.cli.logs import simulate
from dprl.errors import DprlError


@pytest.mark.parametrize(
    "name",
    [
        "chain",
        "hiv",
        "mountain-car",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("acrobot", "cart-pole", "interval-walk")),
    ],
)
def test_a_log_and_its_bounds(tmp_path, capsys, name):
    out = tmp_path / "logs.parquet"
    simulate(name, out, episodes=7, horizon=9)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert str(out) in printed
    table = pq.read_table(out)
    bounds = Bounds.from_mapping(tomllib.loads((tmp_path / "logs.bounds.toml").read_text()))
    assert bounds.units == 7
    assert bounds.horizon == 9
    assert bounds.actions is not None
    assert bounds.max_importance_ratio == pytest.approx(bounds.actions)
    assert len(np.unique(table["episode_id"])) == 7
    for i, (low, high) in enumerate(bounds.observation):
        values = table[f"observation_{i}"].to_numpy()
        assert np.all((values >= np.float32(low)) & (values <= np.float32(high)))
    again = tmp_path / "again.parquet"
    simulate(name, again, episodes=7, horizon=9, seed=0)
    assert pq.read_table(again).equals(table)


def test_a_file_policy_csv_and_a_place_for_the_bounds(tmp_path):
    (tmp_path / "p.py").write_text("import numpy as np\ndef f(s): return np.tile([0.2, 0.3, 0.5], (len(s), 1))\n")
    out, bounds_out = tmp_path / "logs.csv", tmp_path / "other.toml"
    simulate("mountain-car", out, episodes=4, horizon=5, policy=f"{tmp_path / 'p.py'}:f", bounds_out=bounds_out)
    table = pyarrow.csv.read_csv(out)
    assert table.num_rows == 20
    assert set(table["behavior_prob"].to_pylist()) <= {0.2, 0.3, 0.5}
    assert tomllib.loads(bounds_out.read_text())["max_importance_ratio"] == 5
    assert not (tmp_path / "logs.bounds.toml").exists()


def test_gymnasium(tmp_path):
    pytest.importorskip("gymnasium")
    simulate("gymnasium:CartPole-v1", tmp_path / "cart.parquet", episodes=5, horizon=6)
    bounds = tomllib.loads((tmp_path / "cart.bounds.toml").read_text())
    assert len(bounds["observation"]) == 4
    assert bounds["horizon"] == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"environment": "cart"}, "Unknown environment 'cart'"),
        ({"out": "none/logs.parquet"}, "no folder"),
        ({"out": "logs.json"}, "must end in .parquet or .csv"),
        ({"bounds_out": "bounds.txt"}, "must end in .toml"),
        ({"policy": "column"}, "no log yet"),
        ({"policy": "missing.py:f"}, "no policy file"),
        ({"episodes": 0}, "--episodes must be at least 1"),
        ({"horizon": 0}, "--horizon must be at least 1"),
        ({"seed": -1}, "--seed must be at least 0"),
    ],
)
def test_wrong_requests_write_nothing(tmp_path, arguments, message):
    given = {"environment": "chain", "out": "logs.parquet", **arguments}
    for name in ("out", "bounds_out"):
        if name in given:
            given[name] = tmp_path / given[name]
    with pytest.raises(DprlError, match=message):
        simulate(**given)
    assert list(tmp_path.iterdir()) == []
