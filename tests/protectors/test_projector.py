"""What a protector computes: its LSTM against one coordinate at a time, its hand schedule against plain sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.errors import DprlError
from dprl.protectors import lstm
from dprl.protectors.projector import (
    LEVELS,
    SIGNAL_VALUES,
    Architecture,
    HandSchedule,
    UpdateRule,
    init_weights,
    interpolate_knots,
    profile_of,
)

EVERYTHING = Architecture(
    hidden=3, scheduler="adaptive", embedding=2, dense=2, knots=3, learned_start=True, learned_clip=True, dimension=4
)
BLOCKS = np.array([0, 0, 1, 1])


def random_weights(architecture: Architecture, seed: int = 0, scale: float = 0.3):
    like = jax.eval_shape(lambda: init_weights(architecture, jax.random.key(0)))
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(scale * rng.normal(size=x.shape), jnp.float32) for name, x in like.items()}


def test_the_lstm_is_one_network_of_each_coordinate():
    weights = {n: np.asarray(w) for n, w in random_weights(Architecture(hidden=3)).items()}
    inputs = np.random.default_rng(1).normal(size=(2, 6, 5))  # two steps, five coordinates
    sigmoid = lambda x: 1.0 / (1.0 + np.exp(-x))  # noqa: E731
    state = lstm.start(3, 2, 5)
    step = jax.jit(lambda state, x: lstm.step(weights, "projector", state, x))
    for x in inputs:
        state, outputs = step(state, jnp.asarray(x, jnp.float32))
    for i in range(5):
        memory = [[np.zeros(3), np.zeros(3)] for _ in range(2)]
        for x in inputs:
            below = x[:, i]
            for layer, (h, c) in enumerate(memory):
                # Hochreiter and Schmidhuber (1997) with forget gates: input, forget, candidate, output
                both = np.concatenate([below, h])
                gates = weights[f"projector.{layer}.w"] @ both + weights[f"projector.{layer}.b"]
                put, keep, new, show = gates.reshape(4, 3)
                c = sigmoid(keep) * c + sigmoid(put) * np.tanh(new)
                below = sigmoid(show) * np.tanh(c)
                memory[layer] = [below, c]
        expected = weights["projector.out.w"] @ below + weights["projector.out.b"]
        np.testing.assert_allclose(outputs[:, i], expected, rtol=2e-5, atol=1e-6)


def test_before_training_it_is_its_hand_schedule_and_that_is_plain_steps():
    hand = HandSchedule(
        steps=5, sampling_rate=0.1, clip_norm=2.0, step_sizes=(0.7, 0.2), decay=1.5, offset=3.0, tail=0.4, walk=0.9
    )
    weights = init_weights(EVERYTHING, jax.random.key(3))
    rng = np.random.default_rng(0)
    means, noise, clip = rng.normal(size=(5, 4)).astype(np.float32), 0.3, 2.0
    project = lambda x: jnp.clip(x, -0.6, 0.6)  # noqa: E731

    def go(learned: bool) -> tuple[np.ndarray, np.ndarray]:
        first = jnp.asarray([0.5, -0.5, 0.1, 0.0], jnp.float32)
        rule = UpdateRule(architecture=EVERYTHING, hand=hand, weights=weights, learned=learned)
        state, parameters = rule.start(first)
        step = jax.jit(lambda s, p, m, t: rule.update(s, p, m, noise, t, BLOCKS, clip, project))
        for t in range(5):
            state, parameters = step(state, parameters, jnp.asarray(means[t]), t)
        return np.asarray(parameters), np.asarray(state.kept)

    learned, plain = go(True), go(False)
    for ours, theirs in zip(learned, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)

    sizes = np.array([0.7, 0.7, 0.2, 0.2]) * clip
    sizes *= min(1.0, 0.9 / (np.sqrt(5 * np.sum(sizes**2)) * noise))
    x, iterates = np.array([0.5, -0.5, 0.1, 0.0]), []
    for t in range(5):
        x = np.clip(x - sizes * (1 - t / 5) ** 1.5 * 3.0 / (t + 3.0) * means[t], -0.6, 0.6)
        iterates.append(x)
    np.testing.assert_allclose(plain[0], x, rtol=1e-5)
    np.testing.assert_allclose(plain[1], np.mean(iterates[-2:], axis=0), rtol=1e-5)


def test_coordinates_are_exchangeable_and_every_learned_part_acts():
    small = Architecture(hidden=3)
    hand = HandSchedule(steps=4, sampling_rate=1.0, clip_norm=1.0, step_sizes=(0.1,))
    rng, order = np.random.default_rng(2), np.array([2, 0, 1])
    x, mean = (jnp.asarray(rng.normal(size=3), jnp.float32) for _ in range(2))

    def step_of(architecture):
        def step(weights, x, mean):
            rule = UpdateRule(architecture=architecture, hand=hand, weights=weights)
            return rule.update(*rule.start(x), mean, 0.2, 1, np.zeros(3, int), 1.0)[1]

        return jax.jit(step)

    weights, moved = random_weights(small), step_of(small)
    np.testing.assert_allclose(moved(weights, x, mean)[order], moved(weights, x[order], mean[order]), rtol=1e-6)
    untrained = {name: 0.0 * w if ".out." in name else w for name, w in weights.items()}
    assert np.abs(moved(weights, x, mean) - moved(untrained, x, mean)).max() > 1e-3
    bare = Architecture(layers=0, dense=1, knots=2, dimension=3)
    given, moved = random_weights(bare), step_of(bare)
    for name in ("dense", "dense.time", "log_step"):
        changed = given | {name: given[name] + 0.3}
        assert np.abs(moved(changed, x, mean) - moved(given, x, mean)).max() > 1e-4


def test_steps_and_weights_follow_the_released_signal():
    """Against the definition, step by step in numpy."""
    a = Architecture(layers=0, signal=True, learned_average=True)
    hand = HandSchedule(steps=5, sampling_rate=1.0, clip_norm=1.0, step_sizes=(0.3, 0.1), tail=0.6)
    weights = {n: np.asarray(w, np.float64) for n, w in random_weights(a, scale=0.5).items()}
    means, noise = np.random.default_rng(4).normal(size=(5, 4)), 0.2
    rule = UpdateRule(architecture=a, hand=hand, weights={n: jnp.asarray(w, jnp.float32) for n, w in weights.items()})
    step = jax.jit(lambda s, p, m, t: rule.update(s, p, m, noise, t, BLOCKS, 1.0))
    state, parameters = rule.start(jnp.asarray([0.5, -0.5, 0.1, 0.0], jnp.float32))
    theta, iterates, each = np.array([0.5, -0.5, 0.1, 0.0]), [], []
    for t in range(5):
        state, parameters = step(state, parameters, jnp.asarray(means[t], jnp.float32), t)
        at = lambda knots, t=t: np.array([np.interp(t / 5, np.linspace(0, 1, 8), k) for k in knots.T])  # noqa: E731
        # standard deviation of a mean of t + 1 steps, in four coordinates
        above = np.log(np.linalg.norm(means[: t + 1].mean(axis=0)) / (noise * np.sqrt(4.0 / (t + 1))))
        table = np.stack([at(weights["signal"][:, k]) for k in range(SIGNAL_VALUES)])  # over the signal, at this time
        places = np.linspace(0.0, 3.0, SIGNAL_VALUES)
        factors = np.exp([np.interp(above, places, column) for column in table.T])
        theta = theta - np.array([0.3, 0.1])[BLOCKS] * factors[BLOCKS] * means[t]
        if t >= 2:  # the last three of five
            iterates.append(theta)
            each.append(factors[2] * np.exp(at(weights["log_average"][:, None])[0]))
        np.testing.assert_allclose(parameters, theta, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.kept, np.average(iterates, axis=0, weights=each), rtol=1e-4)
    assert np.ptp(each) > 0.1


def test_a_public_profile_has_few_levels_and_a_mean_precision_of_one():
    rng = np.random.default_rng(4)
    for steps in (5, 50):
        of_steps = jax.jit(lambda levels, steps=steps: profile_of({"profile": levels}, steps))
        profile = np.asarray(of_steps(rng.normal(size=LEVELS)), np.float64)
        assert np.mean(profile**-2.0) == pytest.approx(1.0, rel=1e-5)
        assert len(np.unique(profile)) == min(steps, LEVELS)
        assert np.all(np.diff(np.flatnonzero(np.diff(profile))) >= steps // LEVELS)
    np.testing.assert_array_equal(profile_of({}, 7), np.ones(7))
    knots, at = rng.normal(size=(4, 2)), rng.random(6)
    expected = [[np.interp(p, np.linspace(0, 1, 4), column) for column in knots.T] for p in at]
    found = jax.jit(jax.vmap(lambda p: interpolate_knots(jnp.asarray(knots), p)))(jnp.asarray(at))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_adaptive_noise_stays_between_its_bounds_whatever_the_weights():
    adaptive = Architecture(hidden=2, scheduler="adaptive", least=0.3)
    weights = random_weights(adaptive) | {"scheduler.out.w": np.zeros((1, 2), np.float32)}
    hand = HandSchedule(steps=4, sampling_rate=1.0, clip_norm=1.0, step_sizes=(0.1,))

    @jax.jit
    def ratio(bias):
        rule = UpdateRule(architecture=adaptive, hand=hand, weights=weights | {"scheduler.out.b": bias[None]})
        state = rule.start(jnp.zeros(4, jnp.float32))[0]._replace(norm=jnp.asarray(1e6, jnp.float32))
        return rule.propose_noise(state, 0.1, 0.5)[1]

    for bias, expected in ((-1e3, 0.3), (0.0, 1.0), (1e3, 1.7)):
        assert float(ratio(jnp.asarray(bias, jnp.float32))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hidden": 0}, "hidden must be"),
        ({"layers": 11}, "layers must be"),
        ({"layers": 0, "scheduler": "adaptive"}, "need layers"),
        ({"scheduler": "magic"}, "scheduler must be"),
        ({"free": -1.0}, "free must be"),
        ({"dense": 1}, "need the dimension"),
        ({"dense": 99, "dimension": 2}, "dense must be"),
        ({"knots": -1}, "knots must be"),
        ({"embedding": 101, "dimension": 2}, "embedding must be"),
        ({"dimension": 0}, "dimension must be"),
        ({"least": 0.0}, "least must be"),
        ({"norm": 0.0}, "norm must be"),
    ],
)
def test_architectures_that_make_no_sense_are_refused(options, said):
    with pytest.raises(DprlError, match=said):
        Architecture(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "steps must be"),
        ({"sampling_rate": 0.0}, "sampling_rate must be"),
        ({"clip_norm": 0.0}, "clip_norm must be"),
        ({"step_sizes": ()}, "step_sizes must be"),
        ({"step_sizes": (float("nan"),)}, "step_sizes must be"),
        ({"decay": -1.0}, "decay must be"),
        ({"offset": 0.0}, "offset must be"),
        ({"tail": 2.0}, "tail must be"),
        ({"walk": 0.0}, "walk must be"),
    ],
)
def test_hand_schedules_that_make_no_sense_are_refused(options, said):
    with pytest.raises(DprlError, match=said):
        HandSchedule(**{"steps": 2, "sampling_rate": 1.0, "clip_norm": 1.0, "step_sizes": (1.0,)} | options)
