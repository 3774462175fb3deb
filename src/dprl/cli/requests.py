"""Options of the commands, each declared once, with its type, its help text and its group.

A command's request is a frozen dataclass made of these parts. Its fields are the flags and the names in a run file; the
section "Attributes" of the docstrings is the help. The options of an algorithm are the fields of its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dprl.errors import DprlError, Mistakes
from dprl.registry import DEFAULT, Entry, default_for

MUST, MAY, EXPERT = "What you must say", "What you may say", "For experts"
USUAL = frozenset({
    "batch", "confidence", "discount", "environment", "noise", "noise_multiplier", "optimizer", "people", "policy",
    "relation", "reward_radius", "samples", "sampling_rate", "steps", "users", "variant",
})  # fmt: skip
"""Options of algorithms that a first user may want; the others are for experts."""


def required(**how: Any) -> Any:
    """Return a field that must be given, on the command line or in a run file; see :func:`expert` for ``how``."""
    return expert(group=MUST, **how)


def optional(**how: Any) -> Any:
    """Return a field that may be left out; see :func:`expert` for ``how``."""
    return expert(group=MAY, **how)


def expert(*, default: Any = None, **how: Any) -> Any:
    """Return a field that few users need.

    Args:
        how: ``group`` of the help; ``metavar``, the placeholder for the value in the help; ``argument``, whether the
            value is given by its position; ``flag``, if the flag's name differs from the field's; ``file``, whether a
            run file may set the field.
    """
    return field(default=default, metadata={"group": EXPERT, "file": True, **how})


def toml_value(text: str) -> Any:
    """Return ``text`` read as a TOML value, or ``text`` itself if it is not one."""
    import tomllib

    try:
        return tomllib.loads(f"x = {text.strip()}")["x"]
    except (ValueError, RecursionError):
        return text.strip()


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request to a command. Flags override ``--set``, which overrides the run file.

    Attributes:
        options: options of the algorithm, each group with its origin; later groups override earlier ones.
        flags: options of the algorithm that were given as flags, as they were typed.
        mistakes: mistakes found so far; a command adds its own, and raises them all before anything is done.
    """

    options: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    flags: dict[str, str] = field(default_factory=dict)
    mistakes: Mistakes = field(default_factory=Mistakes)

    @staticmethod
    def algorithms() -> Mapping[str, Entry]:
        """Return the algorithms whose options the command takes."""
        return {}

    def given(self, *names: str) -> dict[str, Any]:
        """Return the values of the named fields that were given; the library has defaults for the others."""
        return {name: said for name in names if (said := getattr(self, name)) is not None}


@dataclass(frozen=True, kw_only=True)
class PrintOptions(Request):
    """Options that say how the result is printed.

    Attributes:
        as_json: print one JSON object.
    """

    as_json: bool = expert(default=False, flag="--json", file=False)


@dataclass(frozen=True, kw_only=True)
class Settings(Request):
    """Options of an algorithm that are given with ``--set``.

    Attributes:
        setting: any other option of the algorithm. It may be repeated.
    """

    setting: list[str] | None = expert(flag="--set", metavar="NAME=VALUE", file=False)

    @classmethod
    def parse_setting(cls, text: str) -> tuple[str, Any]:
        """Return the name and the value of a setting; the value is written as in TOML."""
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise DprlError("--set needs NAME=VALUE, such as --set steps=200.")
        return name.strip(), toml_value(value)


@dataclass(frozen=True, kw_only=True)
class RunFileOptions(Settings):
    """Options that say where further options stand, besides the command line.

    Attributes:
        config: TOML file with any of these options. What the command line says wins.
    """

    config: Path | None = expert(metavar="FILE", file=False)


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Request):
    """Options for the budget of one release.

    Attributes:
        epsilon: privacy budget of this release. Smaller protects more.
        delta: second number of the budget. Far below one over the number of people.
    """

    epsilon: float | None = required(metavar="NUMBER")
    delta: float | None = required(metavar="NUMBER")

    def budget(self, epsilon: float | None = None, delta: float | None = None) -> Any:
        """Return the budget, with these defaults; None if a number is missing, or is wrong, which is noted."""
        from dprl.accounting.budget import Budget

        epsilon, delta = (
            given if own is None else own for given, own in ((epsilon, self.epsilon), (delta, self.delta))
        )
        right = [self.mistakes.attempt(Budget, *pair) for pair in ((epsilon, 0.5), (1.0, delta)) if None not in pair]
        return Budget(right[0].epsilon, right[1].delta) if len(right) == 2 and all(right) else None


@dataclass(frozen=True, kw_only=True)
class PublicOptions(Request):
    """Options that say what is public.

    Attributes:
        bounds: TOML file with the public bounds. They are never inferred from rows.
    """

    bounds: Path | dict | None = required(metavar="FILE")

    def default_algorithm(self) -> str:
        """Return the default algorithm for these bounds. Mistakes in them are reported when the release reads them."""
        from dprl.data.bounds_file import read_bounds

        try:
            return default_for(read_bounds(self.bounds))
        except DprlError:
            return DEFAULT


@dataclass(frozen=True, kw_only=True)
class FeatureOptions(Request):
    """Options that say what value functions are made of.

    Attributes:
        features: columns, tabular, fourier:ORDER, fourier-coupled:ORDER or rbf:N, or a network: mlp:HIDDEN. By default
            columns.
    """

    features: str | None = expert(metavar="SPEC")


@dataclass(frozen=True, kw_only=True)
class PeopleOptions(PublicOptions):
    """Options for the log and the people in it.

    Attributes:
        log: .parquet or .csv file, one row per transition. Or a folder that dprl data partition wrote.
        unit: what is protected: person, trajectory or transition. By default a person, where the log has a column
            person_id, and otherwise a trajectory.
        person_column: column that identifies the person.
        behavior_policy: public behaviour policy, for a log without behavior_prob.
        choosing_share: where a policy is chosen, the share of the people who choose. By default 0.4.
    """

    log: Path | None = required(metavar="LOG", argument=True)
    unit: str | None = optional(metavar="UNIT")
    person_column: str | None = expert(metavar="NAME")
    behavior_policy: str | None = expert(metavar="POLICY")
    choosing_share: float | None = expert(metavar="SHARE")


@dataclass(frozen=True, kw_only=True)
class RuleOptions(Request):
    """Options for a rule that is to be learned.

    Attributes:
        cuts: NAME:30,50 for a component that rules may look at, with cut points. Or NAME for each value of a whole
            number. Repeat the option for several; by default all components, cut at public points.
        learner: rules, fitted-q, advantage or recommended, the default. rules gives one action for everybody, or an
            action that comparisons decide. fitted-q gives a policy by fitted Q iteration, and advantage one that does
            better than what was done, in OUT/policy.safetensors. recommended chooses by public facts: over several
            steps fitted-q if the budget is large and advantage if it is smaller; in all other cases rules. Where the
            bounds declare strata, it is fitted-q with an action for each stratum, in OUT/policy.json.
        basis: basis of a learned policy: table, products:0, products:1 or products:2. By default the largest that the
            budget serves.
        return_deviation: how far returns lie from the middle of their range, as the root of the mean square that an
            earlier study reports. The smaller it is, the sooner larger rules are chosen.
    """

    cuts: list[str] | None = optional(metavar="NAME:CUTS")
    learner: str | None = optional(metavar="NAME")
    basis: str | None = expert(metavar="NAME")
    return_deviation: float | None = expert(metavar="NUMBER")

    def rule_options(self) -> dict[str, Any]:
        """Return the options that learning and its plan share."""
        return self.given("cuts", "learner", "basis", "return_deviation")


@dataclass(frozen=True, kw_only=True)
class LogOptions(FeatureOptions, PeopleOptions):
    """Options that say what is asked of the log.

    Attributes:
        target_policy: uniform, always:N, logged, FILE.py:function, column:NAME. Or the folder of a released policy. N
            is an action, and logged what was done. Repeat the option to evaluate several policies in one release, or
            name a list in a FILE.py:LIST.
        compare: A:B, all:B or all: the value of A less that of B. Repeat the option for several differences.
        subgroup: groups whose values are released as well, by first states: site for each value of a whole number,
            age:30,50 for cut points. Repeat the option for several.
        best: choose the best policy, and value only that policy. One part of the people chooses and the others value
            it: both together cost what one does.
        algorithm: by default recommended, or stratified within strata. dprl evaluate --help all names all algorithms.
    """

    target_policy: list[str] | None = required(metavar="POLICY")
    compare: list[str] | None = optional(metavar="A:B")
    best: bool = optional(default=False)
    algorithm: str | None = optional(metavar="NAME")
    subgroup: list[str] | None = expert(metavar="NAME:CUTS")

    def evaluation_options(self) -> dict[str, Any]:
        """Return the options that a release and its plan share."""
        names = ("bounds", "unit", "behavior_policy", "best", "choosing_share", "features", "compare")
        return self.given(*names) | {"person": self.person_column, "subgroups": self.subgroup or []}

    def algorithm_name(self) -> str:
        """Return the algorithm's name.

        If none was given, it is the algorithm of the protector, if there is one, or else the default for the bounds.
        """
        given = [options["optimizer"] for options, _ in self.options if "optimizer" in options]
        folder = self.flags.get("optimizer", given[-1] if given else None)
        if self.algorithm is not None:
            return self.algorithm
        if not isinstance(folder, str):
            return self.default_algorithm()
        from dprl.protectors.protector import Protector

        return Protector.load(folder).algorithm or DEFAULT


@dataclass(frozen=True, kw_only=True)
class SaveOptions(Request):
    """Options that say how a release is paid for and saved.

    Attributes:
        ledger: charge the release in this file. That is done before anything private is read.
        dataset: name of these people's budget in that ledger.
        out: new folder for the release.
        resume: go on with a release that was interrupted. Say the same command again.
        seed: reproducible noise: NOT a private release.
        simulated: nobody is behind these data: measure the truth, too. NOT a private release.
        sign: Ed25519 private key (PEM) to sign the certificate with.
    """

    ledger: Path | None = optional(metavar="FILE")
    dataset: str | None = optional(metavar="NAME")
    out: Path | None = required(metavar="FOLDER", file=False)
    resume: bool = optional(default=False, flag="--resume", file=False)
    seed: int | None = expert(metavar="N", file=False)
    simulated: bool = expert(default=False, file=False)
    sign: Path | None = expert(metavar="FILE", file=False)

    @property
    def private(self) -> bool:
        """Whether the release can be private: it has no seed and is not a simulation."""
        return self.seed is None and not self.simulated

    def release_options(self) -> dict[str, Any]:
        """Return the options that every release takes."""
        return self.given("ledger", "dataset", "seed", "simulated", "resume")


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(SaveOptions, RunFileOptions):
    """Options that say where a release is carried out.

    Attributes:
        engine: where a log in parts is summed: local, or ray, which needs dprl[cluster]. No digit depends on it; by
            default local.
        shards: workers of the engine ray. By default one for each processor.
        address: address of a running Ray cluster, such as 10.0.0.1:6379. By default a new one is started.
    """

    engine: str | None = expert(metavar="NAME")
    shards: int | None = expert(metavar="N")
    address: str | None = expert(metavar="HOST:PORT")

    def release_options(self) -> dict[str, Any]:
        """Return the options that :func:`dprl.evaluate` and :func:`dprl.train` share."""
        return super().release_options() | self.given("engine", "shards", "address")
