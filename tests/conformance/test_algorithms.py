"""One suite over every algorithm in the registry: what holds for one holds for all, or the algorithm is not one."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from dprl.accounting import events
from dprl.audits.record_replay import Recorder
from dprl.config import LIBRARY_DEFAULT, STATED_IN_CODE, Config
from dprl.errors import DprlError
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.protocols import Conformance

from .cases import CASES, ENTRIES, emitted, load, same_event, suite

ROOT = Path(__file__).parents[2]
UNITS = 14


@pytest.fixture(params=CASES, scope="module")
def case(request):
    name, setting = request.param
    return suite(name), setting


@pytest.fixture(scope="module")
def recorder_of_case(case):
    """One for all runs of a case, so that nothing is compiled twice."""
    return Recorder()


@pytest.fixture
def recorder(recorder_of_case):
    recorder_of_case.forget()
    return recorder_of_case


@pytest.fixture(params=list(ENTRIES))
def entry(request):
    return ENTRIES[request.param]


def small_log(conformance: Conformance, units: int = UNITS, seed: int = 1):
    return load(conformance, conformance.columns(units, seed))


def empty_log(conformance: Conformance):
    return load(conformance, {name: values[:0] for name, values in conformance.columns(2, 0).items()})


# --- registration -----------------------------------------------------------------------------------------------


def test_settings_are_the_algorithms(entry):
    conformance = entry.load_conformance()
    for setting in conformance.settings:
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
        # any text may name a protector's folder: that is refused where it is read
        for wrong in ([1], {"a": 1}, object(), *(["no such value"] if option != "optimizer" else [])):
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


def test_declared_event_is_what_the_mechanisms_emit(case, recorder):
    conformance, setting = case
    log = small_log(conformance)
    tape = recorder.record(lambda noise, wrap: conformance.run(setting, log, noise, wrap), SecureNoise.fresh())
    declared = conformance.event(setting)
    assert declared == events.compose([m.event() for m in conformance.mechanisms(setting).values()])
    assert same_event(declared, emitted(conformance, setting, tape.calls))
    assert tape.mechanisms == list(conformance.mechanisms(setting).values())
    # what was recorded of each mechanism is all that it declared
    for place, mechanism in enumerate(tape.mechanisms):
        assert [e.released.shape for e in tape.entries[place]] == [(mechanism.dimension,)] * mechanism.steps
    # a call too many is seen
    extra = [*tape.calls, ("/value", "gaussian", 1, *tape.calls[0][-2:])]
    if tape.calls[0][0] == "/value":
        assert not same_event(declared, emitted(conformance, setting, extra))


def test_event_survives_json(case):
    conformance, setting = case
    declared = conformance.event(setting)
    assert events.from_json(json.loads(json.dumps(events.to_json(declared)))) == declared


# --- a function of its inputs -----------------------------------------------------------------------------------


def test_same_seed_same_answer_and_another_seed_another(case):
    conformance, setting = case
    log = small_log(conformance)
    a, b, c = (conformance.run(setting, log, SeededNoise.from_seed(s)) for s in (1, 1, 2))
    assert set(a) == set(b) == set(c)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
        if name != "intervals":  # so few units that an interval may be the declared range, whatever the noise
            assert not np.array_equal(a[name], c[name])
        assert np.isfinite(a[name]).all()


def test_order_of_the_rows_does_not_matter(case):
    conformance, setting = case
    columns = conformance.columns(UNITS, 1)
    order = np.random.default_rng(0).permutation(len(columns["t"]))
    logs = load(conformance, columns), load(conformance, {n: v[order] for n, v in columns.items()})
    a, b = (conformance.run(setting, log, SeededNoise.from_seed(1)) for log in logs)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def test_streams_of_the_mechanisms_share_no_noise(case, recorder):
    conformance, setting = case
    tape = recorder.record(
        lambda noise, wrap: conformance.run(setting, empty_log(conformance), noise, wrap), SeededNoise.from_seed(5)
    )
    drawn = [e.released / m.noise_std for place, m in enumerate(tape.mechanisms) for e in tape.entries[place]]
    first = [round(float(x[0]), 6) for x in drawn]
    assert len(set(first)) == len(first)


def outputs_close(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        # compiled for another shape, float32 sums may end in another digit
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-4, atol=2e-5)


def test_vmap_over_keys_is_the_loop(case):
    conformance, setting = case
    arrays = conformance.arrays(setting, small_log(conformance))
    keys = jnp.array([[1, 2], [3, 4], [0, 7]], dtype=jnp.uint32)
    mapped = jax.jit(jax.vmap(lambda key: conformance.compute(setting, key, arrays)))(keys)
    one = jax.jit(lambda key: conformance.compute(setting, key, arrays))
    for i, key in enumerate(keys):
        outputs_close(jax.tree.map(lambda x, i=i: x[i], mapped), one(key))
    assert not np.allclose(*(np.asarray(jax.tree.leaves(one(k))[-1]) for k in keys[:2]))


def test_the_compiled_form_is_the_form_of_a_release(case):
    """Host loop over rows, and one function over padded units: the same coins, noise and arithmetic."""
    conformance, setting = case
    log, noise = small_log(conformance), SeededNoise.from_seed(5)
    expected = conformance.run(setting, log, noise)
    arrays = conformance.arrays(setting, log)
    value, theta = jax.jit(lambda key: conformance.compute(setting, key, arrays))(noise.key)
    if value is not None:
        np.testing.assert_allclose(value, expected["value vector"], rtol=1e-9, atol=1e-9)
    if theta is not None:
        outputs_close(theta, expected["value function"])


# --- compiles once ----------------------------------------------------------------------------------------------


class Traces:
    """Counts how often JAX traces the function, which it does once for each compiled version."""

    def __init__(self, function):
        self.count = 0

        def counted(*args):
            self.count += 1
            return function(*args)

        self.compiled = jax.jit(counted)


def test_compiles_once_for_new_keys_and_data(case):
    conformance, setting = case
    traces = Traces(lambda key, arrays: conformance.compute(setting, key, arrays))
    base = conformance.arrays(setting, small_log(conformance))
    for seed in range(2):
        data = jax.tree.map(lambda x, seed=seed: x * (1.0 + seed), base)
        jax.block_until_ready(traces.compiled(jnp.array([seed, 1], dtype=jnp.uint32), data))
    assert traces.count == 1


def test_the_count_of_traces_can_fail(case):
    """Another shape compiles again."""
    conformance, setting = case
    if (conformance.name, setting) != ("toy", conformance.settings[0]):
        pytest.skip("once")
    traces = Traces(lambda key, arrays: conformance.compute(setting, key, arrays))
    for units in (UNITS, UNITS + 9):
        traces.compiled(jnp.zeros(2, dtype=jnp.uint32), conformance.arrays(setting, small_log(conformance, units)))
    assert traces.count == 2


_compilations: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, duration, **kwargs: _compilations.append(name) if name.endswith("backend_compile_duration") else None
)


def test_a_release_compiles_nothing_new_for_other_data(case):
    """A whole run on the host, with other values and another key: not one compilation. With other lengths, some."""
    conformance, setting = case
    columns = conformance.columns(UNITS, 1)
    for _ in range(2):
        conformance.run(setting, load(conformance, columns), SecureNoise(bytes(32)))
    before = len(_compilations)
    other = {**columns, "reward": 1.0 - columns["reward"], "observation": 2.0 - columns["observation"]}
    conformance.run(setting, load(conformance, other), SecureNoise(b"1" * 32))
    assert len(_compilations) == before
    jax.jit(lambda x: x + len(_compilations))(jnp.zeros(3))
    assert len(_compilations) > before, "the listener no longer hears JAX compile"


# --- noise ------------------------------------------------------------------------------------------------------


def test_an_empty_log_still_gives_noise_of_the_declared_scale(case, recorder):
    """Nothing but noise: every released coordinate over its declared scale is standard normal; 2/3 and 3/2 are not."""
    conformance, setting = case
    log, drawn, seeds = empty_log(conformance), {}, 60
    for seed in range(seeds):
        recorder.forget()
        noise = SecureNoise(seed.to_bytes(32, "big"))
        if seed < 4:  # the whole run, recorded; its mechanisms are then drawn from directly, which is quicker
            tape = recorder.record(lambda n, wrap: conformance.run(setting, log, n, wrap), noise)
            for place, mechanism in enumerate(tape.mechanisms):
                assert all(any(e.total) is False for e in tape.entries[place])
                drawn.setdefault(place, []).extend(e.released / mechanism.noise_std for e in tape.entries[place])
        for place, (stream, mechanism) in enumerate(conformance.mechanisms(setting).items()):
            again = noise.stream(f"{stream} again")
            # of short vectors more, so that two thirds of the noise would be seen
            for step in range(max(mechanism.steps, -(-8 // mechanism.dimension))):
                draw = jnp.asarray(mechanism.draw(again, step))
                released = mechanism.release(jnp.zeros(mechanism.dimension, dtype=jnp.int64), draw)
                drawn[place].append(np.asarray(released) / mechanism.noise_std)
    for values in drawn.values():
        z = np.concatenate(values)
        low, high = chi2.ppf([1e-5, 1.0 - 1e-5], len(z))
        assert low <= float(np.sum(z**2)) <= high
        for wrong in (2.0 / 3.0, 1.5):
            assert not low <= float(np.sum((z / wrong) ** 2)) <= high


def test_noise_stands_in_what_is_released(case, recorder):
    """The released value vector of one log varies over seeds by the declared scale, and around its exact sum."""
    conformance, setting = case
    log = small_log(conformance)
    stream, mechanism = next(iter(conformance.mechanisms(setting).items()))
    tape = recorder.record(lambda n, wrap: conformance.run(setting, log, n, wrap), SeededNoise.from_seed(0))
    exact = np.array(tape.entries[0][0].total) * grid_step(mechanism.clip_norm)
    arrays = conformance.arrays(setting, log)
    keys = jnp.stack([jnp.arange(400, dtype=jnp.uint32), jnp.full(400, 9, dtype=jnp.uint32)], axis=1)
    first = jax.jit(jax.vmap(lambda key: jax.tree.leaves(conformance.compute(setting, key, arrays))[0]))(keys)
    z = (np.asarray(first) - exact) / mechanism.noise_std
    low, high = chi2.ppf([1e-5, 1.0 - 1e-5], z.size)
    assert low <= float(np.sum(z**2)) <= high
    assert stream


# --- bad rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["reward", "observation", "behavior_prob", "action"])
def test_a_broken_cell_makes_its_unit_zero_and_nothing_else(case, recorder, column):
    conformance, setting = case
    columns = conformance.columns(UNITS, 1)
    unit = columns["episode_id"] == UNITS - 1  # the last one: no other unit's coins move when it leaves
    noise = SecureNoise(bytes(32))

    def tape(rows):
        log = load(conformance, rows)
        return recorder.record(lambda n, wrap: conformance.run(setting, log, n, wrap), noise)

    without = tape({n: v[~unit] for n, v in columns.items()})
    for bad in (np.nan, np.inf, -np.inf, 1e308):
        cells = np.where(unit & (columns["t"] == 0), bad, columns[column].astype(np.float64))
        broken = tape({**columns, column: cells})
        assert {n: v.shape for n, v in broken.results.items()} == {n: v.shape for n, v in without.results.items()}
        assert broken.calls == without.calls
        for place in without.entries:
            assert [e.total for e in broken.entries[place]] == [e.total for e in without.entries[place]]
        assert all(np.isfinite(v).all() for v in broken.results.values())
