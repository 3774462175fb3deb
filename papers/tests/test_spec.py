"""Specifications: what they say, and what they refuse in one sentence."""

from __future__ import annotations

import math
from importlib import import_module

import pytest
from papers.tests.tiny import SPEC

from dprl.errors import DprlError
from dprl_papers.harness.method import library_methods
from dprl_papers.harness.spec import Programmed, load_paper, papers, parse, split_method


def test_a_specification():
    paper = parse(SPEC, "x.toml")
    assert [f.name for f in paper.figures] == ["1", "2", "3"]
    first = paper.figure("1")
    assert first.values == (10.0, 40.0)
    assert first.epsilon == (0.1,)
    assert first.claims[0].at_least == 2.0
    assert first.claims[1].ours
    assert paper.logs[0].units == 40


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("year = 2019", "year = 2019\ncolour = 1", "x.toml: colour: Unexpected keyword argument."),
        ("year = 2019", "year = 'last'", "x.toml: year: Input should be a valid integer"),
        ("year = 2019", "", "x.toml: year: Field required."),
        ("year = 2019", "year = ", "x.toml is not TOML"),
        ("trials = 4", "trials = 0", "x.toml: trials: Input should be greater than or equal to 1."),
        ('name = "2"', 'name = "1"', "figures: two have the same name"),
        ('domains = ["tiny"]\nx = "ep', 'domains = ["other"]\nx = "ep', "figure 2: a domain has no entry in logs"),
        ('x = "epsilon"', 'x = "delta"', "Input should be 'units', 'step', 'epsilon', 'epoch' or 'domain'."),
        ("values = [10, 40]", "values = [10, 50]", "units must be at most those of the log"),
        ("values = [10, 40]\nquick = [10]", "values = [10.5, 40]", "units must be at most those of the log"),
        ("quick = [10]", "quick = [11]", "figure 1: quick must be among the values"),
        ('"lstd", "mine", "mean', '"lstd", "lstd", "mean', "entries must be different"),
        ('methods = ["zero", "lstd", "mine"]', "methods = []", "should have at least 1 item"),
        ('other = "zero"\n  metric = "rmse"\n  at_least', 'other = "td"\n  at_least', "its other method is not"),
        ("  at_least = 2.0\n", "", "what is asked for is missing"),
        ('method = "lstd"', 'method = "td"', "its method is not in the figure"),
        ("at_most = 1.0", "at_most = nan", "Input should be a finite number"),
    ],
)
def test_what_is_refused(old, new, sentence):
    assert old in SPEC
    with pytest.raises(DprlError) as error:
        parse(SPEC.replace(old, new, 1), "x.toml")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_tuned_values_are_interpolated():
    table = '[[tuned]]\nmethod = "mine"\ndomain = "tiny"\nepsilon = 0.1\nunits = [10, 1000]\nbest = [1.0, 100.0]\n'
    paper = parse(SPEC + table + 'provenance = "simulated"\n', "x.toml")
    assert paper.tuned_value("mine", "tiny", 100, 0.1) == pytest.approx(10.0)
    assert paper.tuned_value("mine", "tiny", 10, 0.1) == pytest.approx(1.0)
    assert paper.tuned_value("mine", "tiny", 5000, 3.0) == pytest.approx(100.0)
    assert paper.tuned_value("mine", "tiny", 1, 0.1) == pytest.approx(1.0)
    assert paper.tuned_value("zero", "tiny", 100, 0.1) is None
    with pytest.raises(DprlError, match="units must increase"):
        parse(SPEC + table.replace("[10, 1000]", "[1000, 10]") + 'provenance = "simulated"\n', "x.toml")


def test_the_step_size_in_a_name():
    assert split_method("gpope x0.1") == ("gpope", 0.1)
    assert split_method("dp-lsw") == ("dp-lsw", 1.0)


def test_unknown_papers_and_figures():
    with pytest.raises(
        DprlError, match=r"There is no reproduction of paper '9'; there are 000, 001, 002, 003, 004, beyond\."
    ):
        load_paper("9")
    with pytest.raises(DprlError, match="has no figure '7'"):
        load_paper("004").figure("7")


@pytest.mark.parametrize("number", papers())
def test_the_papers_of_the_library(number):
    """Every figure of the paper is there, every method exists, and every table has the trivial rows."""
    paper = load_paper(number)
    names = {f.name for f in paper.figures}
    figures = {
        "000": {"1a", "1b", "1c", "2a", "2b", "2c", "privacy", "slope"},
        "001": {"1", "2a", "2b", "2a-equal", "2b-equal", "radius", "lipschitz", "e3", "prop10", "irl"},
        "002": {"figure4", "figure6", "figure7", "figure8", "table1", "queries", "covariance", "noise"},
        "003": {"theorem1", "fosp", "batch", "regret", "noise", "treatment", "cart-pole", "users", "further"},
        "004": {"1a", "1b", "2a", "2b", "3a", "3b", "5", "6", "table1", "bounds", "utility-vs-epsilon", "default"},
        "beyond": {"value-iteration", "cart-pole", "privacy"},
    }
    assert figures[number] <= names
    assert number in ("001", "002", "003", "beyond") or "equal-guarantee" in names
    for figure in paper.figures:
        if isinstance(figure, Programmed):
            assert callable(import_module(figure.module).draw)
            continue
        assert all(split_method(m)[0] in library_methods() for m in figure.methods), figure.name
        assert {"zero", "public-constant"} & set(figure.methods) or figure.beside, figure.name
        if number == "004" and not figure.beside:
            assert {"zero", "public-constant"} <= set(figure.methods), figure.name
    assert all(math.isfinite(x) for table in paper.tuned for x in table.best)
