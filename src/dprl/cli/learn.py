"""``dprl learn``: which rule should decide, learned from a log, and is it better than what was done?"""

from __future__ import annotations

from dataclasses import dataclass

from dprl.cli.command import configure
from dprl.cli.evaluate import show_release
from dprl.cli.requests import Budgeted, Configured, Kept, OfPeople, Printed, expert, may
from dprl.cli.running import Progress, check_out, stoppable
from dprl.registry import DEFAULT, evaluating

VALUES = {DEFAULT: "importance-sampling", "stratified": "stratified"}
"""By which values are told, for each algorithm that evaluates a log with the same bounds by default."""


@dataclass(frozen=True, kw_only=True)
class Learn(Printed, Kept, Configured, Budgeted, OfPeople):
    """Learn a rule from a log, privately: one action for everybody, or one that one or two comparisons decide.

    One part of the people chooses the rule, the others value it, what was done, and every action for everybody. The
    rule is written to OUT/policy.json, and --target-policy OUT reads it back.

    Attributes:
        log: .parquet or .csv file, one row per transition.
        cuts: NAME:30,50 for a component that rules may look at, with cut points. Or NAME for each value of a whole
            number. Repeat the option for several; by default all components, cut at public points.
        learner: rules as above. fitted-q for a policy by fitted Q iteration, or advantage for what does better than
            what was done, in OUT/policy.safetensors. Or recommended, by public facts: over several steps fitted-q where
            the budget is large, advantage where it is not; else rules. Where the
            bounds declare strata, fitted-q with an action for each stratum, in OUT/policy.json.
        basis: of a policy: table, products:0, products:1 or products:2. By default the largest that the budget serves.
        return_deviation: how far returns lie from the middle of their range, as the root of the mean square that an
            earlier study reports. The smaller it is, the sooner larger rules are chosen.
        outcome: what a value means, in words, for the report.
        policies: policy of your own to choose from as well, as a target policy of dprl evaluate. It may be repeated.
    """

    cuts: list[str] | None = may(metavar="NAME:CUTS")
    learner: str | None = may(metavar="NAME")
    basis: str | None = expert(metavar="NAME")
    return_deviation: float | None = expert(metavar="NUMBER")
    policies: list[str] | None = expert(metavar="POLICY")
    outcome: str | None = expert(metavar="TEXT")

    algorithms = staticmethod(lambda: {name: evaluating()[name] for name in VALUES.values()})


def learn(asked: Learn) -> None:
    """Check the request, release, and print the rule and what it is worth."""
    mistakes, private = asked.mistakes, asked.seed is None and not asked.simulated
    run = check_out(
        asked, private, "--resume goes on with a private release: --seed and --simulated begin anew each time."
    )
    with stoppable(run):
        budget, configured = asked.budget(), mistakes.attempt(configure, asked, VALUES[asked.default()])
        mistakes.check()
        assert asked.out is not None

        from dprl.release.learn import learn as release_of

        with Progress(quiet=asked.as_json) as progress:
            release = release_of(
                str(asked.log), budget, algorithm=configured, cuts=asked.cuts or [], policies=asked.policies or [],
                person=asked.person_column, progress=progress, run=run,
                learner=asked.learner or "recommended", basis=asked.basis,
                **asked.only("bounds", "unit", "behavior_policy", "choosing_share", "return_deviation", "outcome"),
                **asked.kept(),
            )  # fmt: skip
        paths = release.save(asked.out, asked.sign)
    show_release(asked, release, paths)
