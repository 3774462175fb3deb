"""Nothing is ever unpickled: no module imports a way to do it, and files of that kind are refused."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest

import dprl as library

SOURCE = Path(library.__file__).parents[2]
FILES = sorted([*SOURCE.glob("src/**/*.py"), *SOURCE.glob("papers/src/**/*.py")])
FORBIDDEN = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "joblib", "marshal", "pandas.read_pickle"}


def breaches(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]  # importlib.import_module("pickle")
        else:
            names = []
        found += [name for name in names if name in FORBIDDEN or name.split(".")[0] in FORBIDDEN]
        if isinstance(node, ast.Attribute) and node.attr in ("read_pickle", "to_pickle"):
            found.append(node.attr)
        if isinstance(node, ast.Call):
            found += ["allow_pickle" for k in node.keywords if k.arg == "allow_pickle"]
            # NumPy's own reader: not needed here, and a positional argument could allow it
            if (
                isinstance(node.func, ast.Attribute)
                and node.func.attr == "load"
                and ast.unparse(node.func) in ("np.load", "numpy.load")
            ):
                found.append("np.load")
    return found


# what goes between the processes of one run, over pipes or a cluster that lets in nobody else; never a file
MESSAGES = {
    "src/dprl/release/engines/ray_workers.py": {"pickle"},
    "papers/src/dprl_papers/harness/workers.py": {"cloudpickle", "joblib"},
}


def test_no_module_can_unpickle():
    for path in FILES:
        module, tree = str(path.relative_to(SOURCE)), ast.parse(path.read_text())
        found = breaches(tree)
        assert {name.split(".")[0] for name in found} == MESSAGES.get(module, set()), module
        assert all(name.startswith("joblib.externals.loky") for name in found if "joblib" in name), "processes alone"
        attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
        used = {n.attr for n in attributes if n.value.id in ("pickle", "cloudpickle")}
        assert used <= {"dumps", "loads", "PicklingError", "register_pickle_by_value"}, "messages, and no files"


@pytest.mark.parametrize(
    "source",
    ["import pickle", "import pickle as p", "from pickle import loads", "def f():\n    import joblib", "import a, dill",
     "from cloudpickle import x", "import importlib\nimportlib.import_module('pickle')", "__import__('shelve')",
     "np.load(f, allow_pickle=True)", "numpy.load(f)", "np.load(f, None, True)", "pd.read_pickle(f)",
     "import joblib.numpy_pickle"],
)  # fmt: skip
def test_the_search_finds_each_way(source):
    assert breaches(ast.parse(source))


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


@pytest.fixture
def bombs(tmp_path):
    for name in ("x.pkl", "x.pickle", "x.joblib", "x.npy", "x.parquet", "x.csv", "x.toml", "x.py", "x.pem", "x.db"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    return tmp_path


@pytest.mark.parametrize("suffix", ["pkl", "pickle", "joblib"])
def test_a_policy_of_that_kind_is_refused(dprl, trial, bombs, suffix):
    for spec in (f"{bombs}/x.{suffix}", f"{bombs}/x.{suffix}:policy"):
        dprl(*trial.arguments(target_policy=spec)).refused("Unknown policy")
    assert trial.charges() == 0


@pytest.mark.parametrize(
    "changes",
    [{"log": "x.pkl"}, {"log": "x.joblib"}, {"log": "x.npy"}, {"log": "x.parquet"}, {"log": "x.csv"},
     {"bounds": "x.pkl"}, {"bounds": "x.toml"}, {"config": "x.pkl"}, {"config": "x.toml"}, {"sign": "x.pem"},
     {"ledger": "x.db"}, {"target_policy": "x.py:policy"}],
)  # fmt: skip
def test_a_pickle_is_not_opened_whatever_it_is_called(dprl, trial, bombs, changes):
    dprl(*trial.arguments(**{k: str(bombs / v) for k, v in changes.items()})).refused()
    assert trial.charges() == 0


def test_objects_in_an_array_are_cells_like_others(trial):
    """They never pass through a file, and are asked for a number alone."""
    from ..sample_log import BOUNDS, columns

    log = columns()
    cells = np.empty(len(log["t"]), dtype=object)
    cells[:] = [Bomb() for _ in cells]
    found = library.read_log({**log, "reward": cells}, bounds=BOUNDS).load()
    assert not found.valid.any()
