"""Private policy gradient (DP-PG, paper 003): its options, and what they mean.

Privacy unit: a person, which means the whole interaction: everything that a person saw, did and was paid in one batch.
Relation: zero out one (the default: a person answers nothing, and the number of places is public), or replace one. For
people who are sampled again and again: add or remove one.
Released: every iterate of the policy, and the noisy sums of clipped vectors from which the iterates are computed.
Not protected: in one pass, that a person stands in a place, and in which place; and what an answer tells the person who
gave it.

A person's vector (score function times returns, and statistics for baseline and scale) is clipped part by part, and the
sum over a batch gets noise. Everything after that is post-processing: step, baseline, and bootstrap at the time limit.
Each person stands in exactly one batch, so T batches cost as much as one release (docs/proofs/one-pass-users.md), also
if the noise of the batches is correlated (docs/proofs/correlated-noise.md). Algorithm 1 as published is in the
distribution dprl-papers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dprl.config import DERIVED, Config
from dprl.engine.algorithm import Algorithm, Setting
from dprl.errors import DprlError
from dprl.protocols import Attack, EnvironmentSpec

if TYPE_CHECKING:
    from dprl.accounting.budget import Budget
    from dprl.learning.policy_gradient.pg_plan import PGPlan

MAX_USERS, MAX_STEPS = 10**9, 10**5
RELATIONS = {"zero-out": "zero out one", "replace-one": "replace one"}
"""Relations between two sets of people: as an option, and as certificates and ledgers say it."""
RESAMPLED = "add or remove one"
"""The relation if people are sampled again and again."""
UNIT = "person"


@dataclass(frozen=True, kw_only=True)
class DPPG(Config):
    r"""Options of private policy gradient; :func:`resolve` fills in the options that are None from public facts.

    Attributes:
        policy: ``softmax`` (linear), ``softmax:fourier:ORDER``, ``gaussian`` (continuous actions), ``mlp:HIDDEN`` or
            ``mlp:HIDDEN:gaussian``.
        users: N, number of places for people; public, and never the number who came. For people who are sampled again,
            N sets the sampling rate and the normaliser, but no limit: everybody in the log may take part, also beyond
            N.
        batch: m, number of places in a batch, or the number of people expected in one; by default users / steps.
        steps: T, number of batches, fewer if some would be empty. By default 20 to 100 for episodes (at most 40 with a
            ``step_size`` of your own), and 25 for people who act once.
        calibration: ``verified``, or ``as-published`` for the calibration of dprl-papers, which certifies nothing.
        relation: how two neighbouring sets of people differ: one person answers nothing (``zero-out``), or another
            person stands in one place (``replace-one``).
        noise: ``independent``, or correlated over the batches: ``square-root`` or ``banded:BANDS``.
        sampling: ``one-pass``, where each person is in one batch; or ``poisson``, where a log is read whole and
            everybody in it may be in every batch, by secret coins.
        clip_norm: C, L2 bound of a person's whole vector.
        step_size: step size for a mean gradient in units of C. By default it is as long as the noise allows, and in
            episodes no longer than the gradients released so far allow (docs/proofs/dp-pg.md).
        decay: decay of the step size over the batches: linear to zero, or constant.
        discount: discount of returns; by default 0.98 for episodes, or the environment's if that is lower.
        estimator: score times returns-to-go, or the paper's summed score times the return of the episode.
        baseline_weight: w; a statistic for the next baseline takes the part w C of the clip; 0 for no baseline.
        scale_weight: part of the clip for a statistic of the length of people's vectors. By this statistic the vectors
            of later batches are scaled up, at most by 10. 0 for no scaling. By default 0.1 for episodes in one pass, if
            the algorithm chooses the step size.
        bootstrap: return that is assumed after a time limit: the released ``baseline``, the largest possible return
            (``bound``), or nothing (``none``).
        regularisation: weight of the log-barrier term (Eq. 3), which is public; by default 0.02 if people act once.
        natural: precondition the noisy gradient by the released policy's Fisher matrix on public states. Otherwise, in
            episodes whose step size the algorithm chooses, the second moments of the policy's features precondition it.
        interactions: number of answers of one person in the same context; the mean return of the others is the baseline
            of each answer.
        sharpness: largest factor on the preferences of the released policy. A factor above 1 lets the policy mix less
            than the policies that people met, which had to explore (docs/proofs/dp-pg.md). By default 3 for the last
            iterate of a softmax, and 1 otherwise.
        release: the ``last`` iterate, the ``average`` of all, or a ``uniform`` draw from them (the paper's theta_U).
        noise_multiplier: noise multiplier to use instead of the calibrated one; refused if it costs more than the
            budget.
    """

    algorithm: ClassVar[str] = "dp-pg"

    policy: str | None = None
    users: int | None = None
    batch: int | None = None
    steps: int | None = None
    calibration: Literal["verified", "as-published"] = "verified"
    relation: Literal["zero-out", "replace-one"] = "zero-out"
    noise: str = "square-root"
    sampling: Literal["one-pass", "poisson"] = "one-pass"
    clip_norm: float = 1.0
    step_size: float | None = None
    decay: Literal["linear", "constant"] = "linear"
    discount: float | None = None
    estimator: Literal["returns-to-go", "reinforce"] = "returns-to-go"
    baseline_weight: float = 0.35
    scale_weight: float | None = None
    bootstrap: Literal["baseline", "bound", "none"] = "baseline"
    regularisation: float | None = None
    natural: bool = False
    interactions: int = 1
    sharpness: float | None = None
    release: Literal["last", "average", "uniform"] = "last"
    noise_multiplier: float | None = None

    ranges: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("users", "batch"), f"1..{MAX_USERS}"),
        "steps": f"1..{MAX_STEPS}",
        "interactions": "1..1000",
        **dict.fromkeys(("clip_norm", "step_size"), "(0, 1e6]"),
        "noise_multiplier": "(0, 1e9]",
        "discount": "[0, 1]",
        **dict.fromkeys(("baseline_weight", "scale_weight"), "[0, 1)"),
        "regularisation": "[0, 1e6]",
        "sharpness": "[1, 1e6]",
    }

    def claimed(self, facts: EnvironmentSpec, budget: Budget, units: int | None) -> PGPlan | None:
        """Return the plan if these options belong to another distribution; None if dprl makes the plan."""
        del facts, budget, units
        return None

    @property
    def chooses_step_size(self) -> bool:
        """Whether the step size is chosen from the noise, and in episodes also from the gradients released before."""
        return self.step_size is None or self.provenance.get("step_size") == DERIVED

    @property
    def poisson(self) -> bool:
        """Whether people are sampled by coins."""
        return self.sampling == "poisson"

    @property
    def relation_words(self) -> str:
        """The relation as certificates and ledgers say it."""
        return RESAMPLED if self.poisson else RELATIONS[self.relation]


STEPS, MOST_STEPS, MOST_STEPS_OF_FIXED_SIZE, STEPS_OF_ONE_ACTION = 20, 100, 40, 25
"""Default numbers of batches, if there are enough people for them: least and most for episodes, most with a step size
of the user's own, and the number for people who act once."""
LEAST_BATCH = 20
DISCOUNT = 0.98
STEPS_TIMES_SIZE, NOISE_OF_STEPS = 6000.0, 2.1
"""Largest product of steps and step size, and its product with the noise of the sum of all steps over users."""
BARRIER, SHARPEST, SCALE_WEIGHT = 0.02, 3.0, 0.1
"""Defaults: weight of the log barrier, largest factor on preferences, and share of the clip that the statistic of
lengths takes."""
LEAST_WEIGHT = 0.01


def _contradictions(c: DPPG) -> Iterator[str]:
    """Yield a sentence for each contradiction among the options."""
    if c.poisson:
        if c.relation != "zero-out":
            yield "users who are sampled again have the relation add or remove one: leave out relation"
        if c.noise != "independent":
            yield "users who are sampled again need noise = 'independent'"


def _contradictions_of_resolved(c: DPPG, facts: EnvironmentSpec, once: bool) -> Iterator[str]:
    """Yield a sentence for each contradiction among options that are filled in, or with the facts."""
    if facts.action is not None and c.sharpness != 1.0:
        yield "continuous actions have no preferences: leave out sharpness"
    if c.scale_weight:
        if c.poisson:
            yield "scale_weight is not for users who are sampled again: leave it out"
        elif once:
            yield "scale_weight is for episodes, and here people act once: leave it out"
        elif not c.chooses_step_size:
            yield "scale_weight needs steps that follow from what is released: leave out step_size, or scale_weight"
        elif c.scale_weight < LEAST_WEIGHT:
            yield f"scale_weight must be 0 or at least {LEAST_WEIGHT}"
    if c.baseline_weight**2 + (c.scale_weight or 0.0) ** 2 > 1.0 - LEAST_WEIGHT:
        both = f" and scale_weight, which is {c.scale_weight:g}," if c.scale_weight else ""
        yield f"baseline_weight{both} must leave a hundredth of the clip's square to the gradient"


def act_once(facts: EnvironmentSpec) -> bool:
    """Tell whether people act once, so that an action has no later consequences."""
    return facts.horizon == 1 or facts.discount == 0.0


def resolve(config: DPPG, facts: EnvironmentSpec, units: int | None = None) -> DPPG:
    """Return the options with everything filled in that follows from public facts.

    Args:
        units: public number of people that the source declares; None if it declares none.

    Raises:
        DprlError: in one sentence: options contradict each other or the facts, or an option is missing.
    """
    c, derived = config, dict[str, Any]()
    if c.poisson and c.noise == DPPG.noise and "noise" not in c.provenance:
        c = c.replace(DERIVED, noise="independent")
    for sentence in _contradictions(c):
        raise DprlError(f"{c.algorithm}: {sentence}.")
    users = c.users
    if users is None:
        if units is None:
            raise DprlError("dp-pg: give users: how many places for users there are.")
        users = derived["users"] = units
    elif units is not None and users != units:
        raise DprlError(f"dp-pg: users must be the {units} units that the bounds declare: leave it out.")
    once = act_once(facts)
    most = MOST_STEPS if c.chooses_step_size else MOST_STEPS_OF_FIXED_SIZE
    batch, steps = _batches(c, users, STEPS_OF_ONE_ACTION if once else min(most, max(STEPS, users // 100)))
    derived |= {"batch": batch, "steps": steps}
    if c.policy is None:
        derived["policy"] = "gaussian" if facts.action is not None else "softmax"
    if c.discount is None:
        derived["discount"] = 1.0 if facts.horizon == 1 else min(DISCOUNT, facts.discount)
    if c.step_size is None:
        derived["step_size"] = STEPS_TIMES_SIZE / steps
    if c.scale_weight is None or c.provenance.get("scale_weight") == DERIVED:
        derived["scale_weight"] = SCALE_WEIGHT if c.chooses_step_size and not once and not c.poisson else 0.0
    if c.regularisation is None:
        derived["regularisation"] = BARRIER if once and facts.action is None else 0.0
    if c.sharpness is None:
        derived["sharpness"] = SHARPEST if c.release == "last" and facts.action is None else 1.0
    c = c.replace(DERIVED, **{name: value for name, value in derived.items() if getattr(c, name) != value})
    for sentence in _contradictions_of_resolved(c, facts, once):
        raise DprlError(f"{c.algorithm}: {sentence}.")
    return c


def _batches(c: DPPG, users: int, usual: int) -> tuple[int, int]:
    """Return the number of places in a batch and the number of batches, by default at most ``usual``."""
    if c.poisson:
        steps = c.steps or usual
        batch = c.batch or max(1, users // steps)
        if batch > users:
            raise DprlError("dp-pg: a batch cannot have more places than there are users.")
        return batch, steps
    if c.batch is None:
        steps = c.steps or max(1, min(usual, users // LEAST_BATCH))
        if steps > users:
            raise DprlError("dp-pg: there are fewer users than steps.")
        batch = -(-users // steps)
        return batch, -(-users // batch)
    if c.batch > users:
        raise DprlError("dp-pg: a batch cannot have more places than there are users.")
    needed = -(-users // c.batch)
    if c.steps is not None and c.steps != needed:
        raise DprlError(f"dp-pg: {users} users in batches of {c.batch} make {needed} steps: leave out batch or steps.")
    return c.batch, needed


def _attack(**options: Any) -> Attack:
    return Attack(epsilon=1.0, delta=1e-6, options=options, trials=400_000)


_SHORT: dict[str, Any] = {"policy": "softmax", "users": 40, "batch": 8}
ALGORITHM = Algorithm(
    DPPG,
    settings={
        "square root": Setting(DPPG(**_SHORT, bootstrap="none")),
        "replace one": Setting(DPPG(**_SHORT, bootstrap="none", relation="replace-one")),
        "independent": Setting(DPPG(**_SHORT, noise="independent")),
        "banded": Setting(DPPG(**_SHORT, noise="banded:3", baseline_weight=0.0)),
        "paper's estimator": Setting(DPPG(**_SHORT, estimator="reinforce", regularisation=0.1, release="average")),
        "network": Setting(DPPG(**{**_SHORT, "policy": "mlp:4"})),
        "network, one step": Setting(DPPG(**{**_SHORT, "policy": "mlp:4"})),
        "gaussian": Setting(DPPG(**{**_SHORT, "policy": "gaussian"})),
        "resampled": Setting(DPPG(**_SHORT, steps=12, sampling="poisson", bootstrap="none")),
    },
    attacks=(
        _attack(),
        _attack(relation="replace-one"),
        _attack(noise="independent"),
        _attack(noise="banded:4"),
        _attack(policy="mlp:4"),
        _attack(scale_weight=0.1, bootstrap="none", discount=0.0),
        _attack(sampling="poisson", steps=10),
        _attack(sampling="poisson", steps=2, batch=100),
    ),
    canary="dprl.audits.attacks.users:canary_of_plan",
)
