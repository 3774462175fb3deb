"""Tables of records for classifiers: real digits, and a simulated census.

The digits are scikit-learn's (Alpaydin and Kaynak, 1998: 1,797 images of 8 by 8 pixels), in place of the paper's MNIST.
Their file is found and read without importing the package. The census stands in for the paper's IPUMS and is
*synthetic*: a country's people have ages, schooling and trades, and an income that follows from these with noise.
Countries differ.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from itertools import combinations
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from dprl.errors import DprlError
from dprl_papers.records.losses import Records

CONSTANT = 0.3
"""Constant feature of each row, beside the others; the whole row has a norm of at most 1."""
PIXELS = 64
TRADES, REGIONS = 6, 4
CENSUS_FEATURES = 6 + TRADES + REGIONS
"""Age, its square, schooling, hours, sex, marriage; one-hot trades and regions."""


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return ``(1797, 64)`` float32 pixels from 0 to 1, and ``(1797,)`` digits."""
    try:
        source = Path(str(distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")))
        with gzip.open(source, "rt") as file:
            rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    except (PackageNotFoundError, OSError) as error:
        raise DprlError("The digits come with scikit-learn: pip install 'dprl[digits]'.") from error
    return rows[:, :-1] / 16.0, rows[:, -1].astype(np.int64)


def digit_pair(pair: tuple[int, int], public: tuple[int, ...]) -> Records:
    """Return the images of two digits as NumPy arrays; the first digit has label -1.

    The images are centred at the mean image of the ``public`` digits, scaled to one length, and extended by a constant.
    """
    pixels, labels = digits()
    centre = pixels[np.isin(labels, public)].mean(axis=0)
    x = pixels[np.isin(labels, pair)] - centre
    y = np.where(labels[np.isin(labels, pair)] == pair[0], -1.0, 1.0).astype(np.float32)
    return Records(bounded(x), y)  # type: ignore[arg-type]


def digit_pairs(digits_used: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return all pairs of the digits, in both orders, as it is arbitrary which of two classes has label 1."""
    each = list(combinations(digits_used, 2))
    return tuple(each + [(b, a) for a, b in each])


def bounded(x: np.ndarray) -> np.ndarray:
    """Return ``(n, k + 1)`` float32 rows of norm 1: the constant, and the features scaled to one length."""
    length = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    constant = np.full((len(x), 1), CONSTANT, np.float32)
    return np.concatenate([constant, x / length * np.sqrt(1.0 - CONSTANT**2)], axis=1).astype(np.float32)


def census(country: jax.Array, people: jax.Array, count: int) -> Records:
    """Return ``count`` people of a simulated country; the label says whether the income lies above a threshold.

    Args:
        country: public key of the country's own traits; the traits that all countries share are fixed.
        people: key for drawing the people.

    Returns:
        ``(count, CENSUS_FEATURES + 1)`` rows of norm at most 1, the constant first.
    """
    shared, own = jax.random.key(1870), jax.random.split(country, 4)
    effects = 0.8 * jax.random.normal(jax.random.fold_in(shared, 0), (CENSUS_FEATURES,), jnp.float32)
    # effects that raise income everywhere: schooling, hours, middle age
    effects = effects.at[:6].set(jnp.asarray([0.5, -0.8, 1.5, 0.9, 0.5, 0.4], jnp.float32))
    effects = effects + 0.6 * jax.random.normal(own[0], (CENSUS_FEATURES,), jnp.float32)
    level = 0.5 * jax.random.normal(own[1], (4,), jnp.float32)
    k = jax.random.split(people, 8)
    normal = lambda key: jax.random.normal(key, (count,), jnp.float32)  # noqa: E731
    age = jnp.clip(0.9 * normal(k[0]) + level[0], -2.0, 2.5)
    schooling = jnp.clip(normal(k[1]) - 0.2 * age + level[1], -2.5, 2.5)
    hours = jnp.clip(normal(k[2]) + level[2], -2.5, 2.5)
    sex = jnp.where(jax.random.bernoulli(k[3], 0.5, (count,)), 1.0, -1.0)
    married = jnp.where(normal(k[4]) + 0.8 * age > 0.0, 1.0, -1.0)
    shares = jax.nn.softmax(jax.random.normal(own[2], (TRADES + REGIONS,), jnp.float32))
    trade = jax.random.categorical(
        k[5], jnp.log(shares[:TRADES]) + 0.5 * schooling[:, None] * jnp.linspace(-1, 1, TRADES)
    )
    region = jax.random.categorical(k[6], jnp.log(shares[TRADES:]), shape=(count,))
    x = jnp.concatenate(
        [
            jnp.stack([age, age * age - 0.8, schooling, hours, sex, married], axis=1) / 2.0,
            jax.nn.one_hot(trade, TRADES),
            jax.nn.one_hot(region, REGIONS),
        ],
        axis=1,
    ).astype(jnp.float32)
    noise = jax.random.logistic(k[7], (count,), jnp.float32)
    income = 2.0 * (x @ effects) + level[3] + noise
    y = jnp.where(income > 1.0, 1.0, -1.0).astype(jnp.float32)
    scale = jnp.sqrt(1.0 - CONSTANT**2) / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1.0)
    return Records(
        jnp.concatenate([jnp.full((count, 1), CONSTANT, jnp.float32), (x * scale).astype(jnp.float32)], axis=1), y
    )
