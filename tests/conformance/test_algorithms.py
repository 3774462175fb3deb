"""One suite over every algorithm in the registry: what holds for one holds for all, or the algorithm is not one."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from dprl.audits.record_replay import Recorder, compare
from dprl.config import LIBRARY_DEFAULT, STATED_IN_CODE, Config
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.noise import SecureNoise, SeededNoise

from .cases import CASES, ENTRIES, check_event, emitted, log_of, recorded, released, same_event, suite, totals, without
from .walks import arrays_of, compute, mechanisms_of, walks

UNITS = 14
KEYS = jnp.stack([jnp.arange(400, dtype=jnp.uint32), jnp.full(400, 9, dtype=jnp.uint32)], axis=1)


@pytest.fixture(params=CASES, scope="module")
def case(request):
    name, setting = request.param
    return suite(name), setting


class Compiled:
    """A case as one function of a key and a log's arrays, and how often JAX traced it: once per compiled version."""

    def __init__(self, conformance: Any, setting: str) -> None:
        self.count = 0
        log = log_of(conformance, setting, walks(conformance, UNITS, 1)).load()
        self.arrays = arrays_of(conformance, setting, log)

        def counted(key: Any, arrays: Any) -> Any:
            self.count += 1
            return compute(conformance, setting, key, arrays)

        self.one = jax.jit(counted)
        self._all = jax.jit(jax.vmap(lambda key, arrays: compute(conformance, setting, key, arrays), (0, None)))

    @functools.cached_property
    def mapped(self) -> Any:
        """Values and value functions of all keys at once."""
        return self._all(KEYS, self.arrays)


@pytest.fixture(scope="module")
def compiled(case):
    return Compiled(*case)


@pytest.fixture(params=list(ENTRIES))
def entry(request):
    return ENTRIES[request.param]


def nobody(conformance: Any) -> Any:
    return {name: values[:0] for name, values in walks(conformance, 2, 0).items()}


# --- registration -----------------------------------------------------------------------------------------------


def test_settings_are_the_algorithms(entry):
    conformance = entry.load_conformance()
    for setting in conformance.algorithm.settings:
        assert isinstance(conformance.config(setting), entry.load_config())


# --- configuration ----------------------------------------------------------------------------------------------


def test_config_is_frozen_keyword_only_and_documented(entry):
    kind = entry.load_config()
    assert issubclass(kind, Config)
    assert kind.__dataclass_params__.frozen
    assert all(p.kind is p.KEYWORD_ONLY for p in inspect.signature(kind).parameters.values())
    config = kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, kind.options()[0], None)
    for option in kind.options():
        # where it is declared, or in the class itself
        documented = " ".join(base.__doc__ or "" for base in kind.__mro__ if issubclass(base, Config))
        assert f"{option}:" in documented, f"{option} is not documented"


def test_config_refuses_what_it_does_not_know(entry):
    kind = entry.load_config()
    with pytest.raises(DprlError, match="no option 'no_such_option'"):
        kind.from_mapping({"no_such_option": 1}, "flag")
    with pytest.raises(DprlError):
        kind.from_mapping({"provenance": {}}, "flag")
    for option in kind.options():
        # any text may name a protector's folder, or covariates: that is refused where the folder or the bounds are read
        named = option in ("optimizer", "covariates")
        for wrong in ([1], {"a": 1}, object(), *([] if named else ["no such value"])):
            with pytest.raises(DprlError, match=option):
                kind.from_mapping({option: wrong}, "flag")


def test_every_number_has_a_range(entry):
    """Not a number, infinity and negative numbers are refused; each option that is a number is tried."""
    kind, tried = entry.load_config(), 0
    for option, hint in typing.get_type_hints(kind).items():
        if option == "provenance" or not {int, float} & {hint, *typing.get_args(hint)}:
            continue
        tried += 1
        below = [] if option == "value_baseline" else [-1.0]  # a value may be negative
        for wrong in (float("nan"), float("inf"), *below) if int not in {hint} else (-1, 10**12):
            with pytest.raises(DprlError):
                kind.from_mapping({option: wrong}, "flag")
    assert tried


def test_every_option_has_a_provenance(entry):
    kind = entry.load_config()
    for option, fact in kind().hyper_parameters().items():
        assert fact == {"value": getattr(kind(), option), "provenance": LIBRARY_DEFAULT}
    assert set(kind().hyper_parameters()) == set(kind.options())
    defaults = {o: getattr(kind(), o) for o in kind.options()}
    number = next(o for o, v in defaults.items() if isinstance(v, float) and 0.0 < v < 1.0)
    changed = round(defaults[number] * 0.99, 6)
    assert (
        kind.from_mapping({number: changed}, "run.toml").hyper_parameters()[number]["provenance"].startswith("run.toml")
    )
    assert kind(**{number: changed}).hyper_parameters()[number]["provenance"] == STATED_IN_CODE


# --- the event is what happens ----------------------------------------------------------------------------------


def test_declared_event_is_what_the_mechanisms_emit(case):
    conformance, setting = case
    tape = recorded(conformance, setting, walks(conformance, UNITS, 1), SecureNoise.fresh())
    check_event(conformance, setting, tape)
    # what was recorded of each mechanism is all that it declared
    for place, mechanism in enumerate(tape.mechanisms):
        assert [e.released.shape for e in tape.entries[place]] == [(mechanism.dimension,)] * mechanism.steps
    # a call too many is seen
    extra = [*tape.calls, ("/value", "gaussian", 1, *tape.calls[0][-2:])]
    if tape.calls[0][0] == "/value":
        assert not same_event(conformance.plan(setting).event, emitted(conformance, setting, extra))


# --- a function of its inputs -----------------------------------------------------------------------------------


def test_same_seed_same_answer_and_another_seed_other_noise(case):
    conformance, setting = case
    columns = walks(conformance, UNITS, 1)
    release = released(conformance, setting, columns)
    a, b = release(1), release(1)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
        assert np.isfinite(a[name]).all()
    # not the answers, which are an end of the public range, or its middle, where noise rules
    tapes = [recorded(conformance, setting, columns, SeededNoise.from_seed(seed)).entries for seed in (1, 2)]
    for place in tapes[0]:
        one, other = tapes[0][place], tapes[1][place]
        assert not any(np.array_equal(x.released, y.released) for x, y in zip(one, other, strict=True))


def test_order_of_the_rows_does_not_matter(case):
    conformance, setting = case
    columns = walks(conformance, UNITS, 1)
    order = np.random.default_rng(0).permutation(len(columns["t"]))
    a, b = (released(conformance, setting, rows)(1) for rows in (columns, {n: v[order] for n, v in columns.items()}))
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def test_streams_of_the_mechanisms_share_no_noise(case):
    conformance, setting = case
    tape = recorded(conformance, setting, nobody(conformance), SeededNoise.from_seed(5))
    drawn = [e.released / m.noise_std for place, m in enumerate(tape.mechanisms) for e in tape.entries[place]]
    first = [round(float(x[0]), 6) for x in drawn]
    assert len(set(first)) == len(first)


def outputs_close(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        # compiled for another shape, float32 sums may end in another digit
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-4, atol=2e-5)


def test_vmap_over_keys_is_the_loop(compiled):
    one = [compiled.one(key, compiled.arrays) for key in KEYS[:3]]
    for i, found in enumerate(one):
        outputs_close(jax.tree.map(lambda x, i=i: x[i], compiled.mapped), found)
    assert not np.allclose(*(np.asarray(jax.tree.leaves(found)[-1]) for found in one[:2]))


def test_the_compiled_form_is_the_form_of_a_release(case, compiled):
    """Host loop over rows, and one function over padded units: the same coins, noise and arithmetic."""
    conformance, setting = case
    noise = SeededNoise.from_seed(5)
    tape = recorded(conformance, setting, walks(conformance, UNITS, 1), noise)
    value, theta = compiled.one(noise.key, compiled.arrays)
    if value is not None:
        # a value around a learned function moves with the last digits of its float32 weights
        exact = 1e-9 if theta is None else 1e-6
        np.testing.assert_allclose(value, tape.entries[0][0].released, rtol=exact, atol=exact)
    if theta is not None:
        weights = tape.results["theta"]
        outputs_close(theta[: len(weights)], weights)  # behind them there may be the noisy sums


# --- compiles once ----------------------------------------------------------------------------------------------


def test_compiles_once_for_new_keys_and_data(compiled):
    for seed in range(2):
        data = jax.tree.map(lambda x, seed=seed: x * (1.0 + seed), compiled.arrays)
        jax.block_until_ready(compiled.one(jnp.array([seed, 1], dtype=jnp.uint32), data))
    assert compiled.count == 1


def test_the_count_of_traces_can_fail():
    """Another shape compiles again."""
    toy = suite("toy")
    first = next(iter(toy.algorithm.settings))
    compiled, other = (Compiled(toy, first) for _ in range(2))
    more = log_of(toy, first, walks(toy, UNITS + 9, 1)).load()
    for arrays in (other.arrays, arrays_of(toy, first, more)):
        compiled.one.lower(jnp.zeros(2, dtype=jnp.uint32), arrays)
    assert compiled.count == 2


_compilations: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, duration, **kwargs: _compilations.append(name) if name.endswith("backend_compile_duration") else None
)


def test_a_release_compiles_nothing_new_for_other_data(case):
    """A whole run on the host, with other values and another key: not one compilation. With other lengths, some."""
    conformance, setting = case
    columns = walks(conformance, UNITS, 1)
    for _ in range(2):
        released(conformance, setting, columns)(1)
    before = len(_compilations)
    other = {**columns, "reward": 1.0 - columns["reward"], "observation": 2.0 - columns["observation"]}
    released(conformance, setting, other)(2)
    assert len(_compilations) == before
    jax.jit(lambda x: x + len(_compilations))(jnp.zeros(3))
    assert len(_compilations) > before, "the listener no longer hears JAX compile"


# --- noise ------------------------------------------------------------------------------------------------------


def test_an_empty_log_still_gives_noise_of_the_declared_scale(case):
    """Nothing but noise: every released coordinate over its declared scale is standard normal; 2/3 and 3/2 are not."""
    conformance, setting = case
    drawn: dict[str, list[np.ndarray]] = {stream: [] for stream in mechanisms_of(conformance, setting)}
    for seed in range(60):
        noise = SecureNoise(seed.to_bytes(32, "big"))
        if seed < 4:  # the whole run, recorded; its mechanisms are then drawn from directly, which is quicker
            tape = recorded(conformance, setting, nobody(conformance), noise)
            for stream, mechanism in mechanisms_of(conformance, setting).items():
                entries = tape.entries[tape.mechanisms.index(mechanism)]
                assert not any(any(e.total) for e in entries)
                drawn[stream].extend(e.released / mechanism.noise_std for e in entries)
        for stream, mechanism in mechanisms_of(conformance, setting).items():
            again = noise.stream(f"{stream} again")
            # of short vectors more, so that two thirds of the noise would be seen
            for step in range(max(mechanism.steps, -(-8 // mechanism.dimension))):
                draw = jnp.asarray(mechanism.draw(again, step))
                alone = mechanism.release(jnp.zeros(mechanism.dimension, dtype=jnp.int64), draw)
                drawn[stream].append(np.asarray(alone) / mechanism.noise_std)
    for values in drawn.values():
        z = np.concatenate(values)
        low, high = chi2.ppf([1e-5, 1.0 - 1e-5], len(z))
        assert low <= float(np.sum(z**2)) <= high
        for wrong in (2.0 / 3.0, 1.5):
            assert not low <= float(np.sum((z / wrong) ** 2)) <= high


def test_noise_stands_in_what_is_released(case, compiled):
    """The released value vector of one log varies over seeds by the declared scale, and around its exact sum."""
    conformance, setting = case
    if conformance.plan(setting).around_function:
        pytest.skip("values are released on the host")
    mechanism = mechanisms_of(conformance, setting)["value"]
    tape = recorded(conformance, setting, walks(conformance, UNITS, 1), SeededNoise.from_seed(0))
    exact = np.array(tape.entries[0][0].total) * grid_step(mechanism.clip_norm)
    z = (np.asarray(compiled.mapped[0]) - exact) / mechanism.noise_std
    low, high = chi2.ppf([1e-5, 1.0 - 1e-5], z.size)
    assert low <= float(np.sum(z**2)) <= high


# --- bad rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["reward", "observation", "behavior_prob", "action"])
def test_a_broken_cell_makes_its_unit_zero_and_nothing_else(case, column):
    conformance, setting = case
    columns = walks(conformance, UNITS, 1)
    unit = columns["episode_id"] == UNITS - 1  # the last one: no other unit's coins move when it leaves
    recorder, noise = Recorder(), SecureNoise(bytes(32))
    # within strata nobody reads what a log says of propensities
    read = column != "behavior_prob" or conformance.plan(setting).bounds.strata is None
    rest = recorded(conformance, setting, without(columns, UNITS - 1) if read else columns, noise, recorder)
    # what is missing in a state counts as its declared fill
    filled = column == "observation" and conformance.plan(setting).bounds.fill is not None
    for bad in (np.inf, -np.inf, 1e308) if filled else (np.nan, np.inf, -np.inf, 1e308):
        cells = np.where(unit & (columns["t"] == 0), bad, columns[column].astype(np.float64))
        broken = recorded(conformance, setting, {**columns, column: cells}, noise, recorder)
        assert compare(rest, broken).problems == ()
        assert totals(broken) == totals(rest)
        assert all(np.isfinite(v).all() for v in broken.results.values())
