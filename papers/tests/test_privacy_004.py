"""Table 1 and the epsilon of published noise, against closed forms, quadrature and the accountant at other steps."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from dprl.accounting.accountant import epsilon_of
from dprl.accounting.events import poisson_gaussian
from dprl.errors import DprlError
from dprl_papers.paper_004_gpope.privacy import NAMES, published_epsilon, smooth_epsilons, table_1
from dprl_papers.paper_004_gpope.published import theorem_1_conditions


@pytest.fixture(scope="module")
def table():
    return table_1(units=200, epsilon=0.1)


def test_theorem_1_has_the_elasticities_of_its_formula(table):
    """ln epsilon = -ln sigma - ln m + ln(N)/2 + ln(ln(1/delta))/2 + const."""
    found = table[0].of_epsilon
    assert found["sigma"] == pytest.approx(-1.0)
    assert found["m"] == pytest.approx(-1.0)
    assert found["N"] == pytest.approx(0.5)
    assert found["delta"] == pytest.approx(0.5 * math.log(math.log(1e5 / 1.1) / math.log(1e5)) / math.log(1.1))


def test_the_signs_are_the_paper_s_two_examples_and_the_rule(table):
    """Negative for epsilon and delta, and for m and epsilon; positive exactly for the pairs with N."""
    for relations in table[:2]:
        for i, row in enumerate(NAMES):
            for j, column in enumerate(NAMES):
                expected = "" if i == j else "+" if "N" in (row, column) else "-"
                assert relations.signs[i][j] == expected
    full = table[2]
    m = NAMES.index("m")
    assert full.signs[m] == ["0", "0", "0", "0", ""]
    assert [line[m] for line in full.signs] == ["", "", "", "", ""]


def test_cells_are_consistent_with_each_other(table):
    """A change and back is nothing: e_rc e_cr = 1; around three parameters e_ab e_bc e_ca = -1."""
    for relations in table[:2]:
        e = relations.elasticities
        for i in range(5):
            for j in range(5):
                if i != j:
                    assert e[i][j] * e[j][i] == pytest.approx(1.0)
        assert e[0][1] * e[1][3] * e[3][0] == pytest.approx(-1.0)


@pytest.mark.parametrize("version", [1, 2])
def test_elasticities_agree_with_the_accountant_at_another_step(table, version):
    relations = table[version]
    setting = relations.setting
    rate = 1.0 / setting["m"] if version == 1 else 1.0

    def epsilon(**moved: float) -> float:
        s = setting | moved
        q = 1.0 / s["m"] if version == 1 else 1.0
        return epsilon_of(poisson_gaussian(q, s["sigma"], round(s["N"])), s["delta"])

    assert setting["epsilon"] == pytest.approx(epsilon_of(poisson_gaussian(rate, setting["sigma"], 200), 1e-5))
    for name in NAMES[1:]:
        # a central difference around the middle of the step that the table takes
        low, high = {name: setting[name] * 1.03}, {name: setting[name] * 1.07}
        if name == "N":
            low, high = {name: 206}, {name: 214}
        got = math.log(epsilon(**high) / epsilon(**low)) / math.log(high[name] / low[name])
        assert relations.of_epsilon[name] == pytest.approx(got, rel=0.03, abs=1e-9)


def test_moving_the_column_by_its_elasticity_restores_epsilon(table):
    """One per cent of the row, e per cent of the column: epsilon is where it was, to second order."""
    relations = table[1]
    setting = relations.setting
    for row, column in (("sigma", "m"), ("m", "sigma"), ("delta", "sigma"), ("sigma", "delta")):
        cell = relations.elasticities[NAMES.index(row)][NAMES.index(column)]
        moved = setting | {row: setting[row] * 1.02, column: setting[column] * 1.02**cell}
        alone = setting | {row: setting[row] * 1.02}
        values = [
            epsilon_of(poisson_gaussian(1.0 / s["m"], s["sigma"], round(s["N"])), s["delta"]) for s in (moved, alone)
        ]
        change, uncorrected = (abs(math.log(x / setting["epsilon"])) for x in values)
        assert change < 0.15 * uncorrected


def test_a_change_that_moves_no_number_of_steps_is_refused():
    with pytest.raises(DprlError, match="too small"):
        table_1(units=100, change=1e-4)


def hockey_stick(epsilon: float, q: float, z: float) -> float:
    """H of (1 - q) N(0, z^2) + q N(1, z^2) against N(0, z^2), from the one threshold at which the ratio crosses."""
    x = z * z * math.log((math.exp(epsilon) - 1.0 + q) / q) + 0.5
    return float((1.0 - q - math.exp(epsilon)) * ndtr(-x / z) + q * ndtr((1.0 - x) / z))


def test_one_step_s_epsilon_is_that_of_the_closed_form():
    delta = 1e-3
    for m, claimed in ((5, 1.0), (40, 0.5)):
        found = published_epsilon(m, 1, claimed, delta)
        exact = brentq(lambda e, m=m, s=found.sigma: hockey_stick(e, 1.0 / m, s / 2.0) - delta, 1e-9, 60.0)
        assert found.at_least <= exact <= found.pair_at_most * (1.0 + 1e-9)
        assert found.at_least > 0.9 * found.pair_at_most
        assert found.sigma == pytest.approx(2.0 * math.sqrt(math.log(1.0 / delta)) / (m * claimed))


def test_two_steps_epsilon_is_that_of_quadrature():
    """The positive part of P - e^epsilon Q over a plane, for the composed pair."""
    m, delta = 3, 1e-2
    found = published_epsilon(m, 2, 1.0, delta)
    z = found.sigma / 2.0
    x = np.linspace(-9.0 * z, 1.0 + 9.0 * z, 1501)
    normal = lambda centre: np.exp(-((x - centre) ** 2) / (2.0 * z * z)) / (z * math.sqrt(2.0 * math.pi))  # noqa: E731
    q = normal(0.0)
    p = (1.0 - 1.0 / m) * q + normal(1.0) / m
    P, Q, cell = np.outer(p, p), np.outer(q, q), (x[1] - x[0]) ** 2
    exact = brentq(lambda e: float(np.maximum(P - math.exp(e) * Q, 0.0).sum() * cell) - delta, 0.0, 30.0)
    assert found.at_least <= exact * 1.001
    assert exact <= found.pair_at_most * 1.001


def test_no_pair_of_logs_is_worse_in_one_step():
    """Replace one of m gradients in [-1, 1] by another: the divergence, either way, is at most that of the pair."""
    rng = np.random.default_rng(0)
    x = np.linspace(-12.0, 12.0, 6001)
    for trial in range(200):
        m, z, epsilon = int(rng.integers(1, 5)), rng.uniform(0.3, 3.0), rng.uniform(0.0, 3.0)
        centres = rng.uniform(-1.0, 1.0, m + 1) if trial % 2 else rng.choice([-1.0, 1.0], m + 1)
        density = np.exp(-((x[:, None] - centres) ** 2) / (2.0 * z * z)) / (z * math.sqrt(2.0 * math.pi))
        P, Q = density[:, :m].mean(axis=1), (density[:, 1:m].sum(axis=1) + density[:, m]) / m
        divergence = np.maximum(P - math.exp(epsilon) * Q, 0.0).sum() * (x[1] - x[0])
        assert divergence <= hockey_stick(epsilon, 1.0 / m, z / 2.0) + 1e-5  # quadrature


def test_published_noise_falls_short_where_the_page_says_so():
    """docs/proofs/gpope.md: m = N = 200 has 44.36 to 44.37 where 1 is claimed; 0.0985 to 0.0995 where 0.1 is."""
    wrong, open_ = published_epsilon(200, 200, 1.0), published_epsilon(200, 200, 0.1)
    assert 40.0 < wrong.at_least <= 44.37
    assert wrong.pair_at_most >= 44.36
    assert not wrong.precondition
    assert 0.09 < open_.at_least <= 0.0995
    assert 0.0985 <= open_.pair_at_most < 0.1
    assert open_.precondition
    assert json.loads(json.dumps(asdict(wrong)))["claimed"] == 1.0


@pytest.mark.slow
def test_published_noise_falls_short_where_its_own_condition_holds():
    found = published_epsilon(1000, 1000, 0.1)
    assert found.precondition
    assert 0.1 < found.at_least <= 0.1284
    assert found.pair_at_most >= 0.1259


def test_smooth_noise_has_less_epsilon_than_it_claims():
    """At d = 39: 0.013 where 0.1 is claimed, for 7.8 times the noise that 0.1 needs."""
    for found in smooth_epsilons(39, (0.1, 1.0)):
        assert found.noise == pytest.approx(5.0 * math.sqrt(2.0 * math.log(2e5)) / found.claimed)
        assert found.epsilon < 0.2 * found.claimed
        assert found.noise_needed < found.noise / 6.0
    found = smooth_epsilons(39, (0.1,))[0]
    assert found.epsilon == pytest.approx(0.0129, abs=1e-4)
    assert found.noise_needed == pytest.approx(31.54, abs=0.05)


def test_theorem_1_is_wrong_within_its_own_conditions():
    """At m = 100, N = 10,000 all that its proof assumes holds, and a pair of logs has more than is claimed; not with 4
    for the constant."""
    found = {c2: published_epsilon(100, 10_000, 1.0, 1e-5, c2) for c2 in (2.0, 4.0)}
    for one in found.values():
        assert all(c.holds for c in theorem_1_conditions(one.sigma, one.steps, one.units, one.claimed))
    assert found[2.0].at_least > 1.1
    assert found[4.0].pair_at_most < 1.0
