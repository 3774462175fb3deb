"""Q-learning that protects the reward function (paper 001, repaired): its options, and what they mean.

Privacy unit: the reward function, as a whole.
Relation: two reward functions at most ``reward_radius`` apart everywhere. In the variants with a path they are
functions of the state in which the action is taken and of the action, and their difference has a Lipschitz constant of
at most ``reward_lipschitz`` over the observation scaled to [0, 1].
Released: the weights of the Q-function, which may be evaluated any number of times; and as many iterates as anybody
wants, because everything is made only of noisy answers about the rewards.
Not protected: states, actions and transitions.

Variants, each with its page in docs/proofs: ``functional`` adds a path of a Gaussian process to the reward function
(functional-noise). ``observed-reward`` adds Gaussian noise to each observed reward (observed-reward). ``gradient`` adds
Gaussian noise to the part of each update that contains the reward (reward-gradient). ``output`` adds a path to the
optimal Q of a public model (output-perturbation). Algorithm 1 of the paper as published is in the distribution
dprl-papers.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dprl.accounting.reward_relation import LARGEST_DECAY, RewardRelation, default_decay
from dprl.config import DERIVED, Config, filled
from dprl.engine.algorithm import Algorithm, Setting
from dprl.errors import DprlError
from dprl.protocols import Attack, EnvironmentSpec, RewardOf

if TYPE_CHECKING:
    from dprl.accounting.budget import Budget
    from dprl.learning.learning_plan import LearningPlan
    from dprl.value_functions.q_function import QFunction

Variant = Literal["functional", "observed-reward", "gradient", "output"]
MAX_SAMPLES, MAX_UPDATES = 10**7, 10**6
PATH_VARIANTS = ("functional", "output")
"""Variants that add a path of a Gaussian process."""
_DEFAULT_NETWORKS: Mapping[Variant, str] = {
    "functional": "fourier:3", "observed-reward": "mlp:32", "gradient": "fourier:3", "output": "table:257",
}  # fmt: skip
MOST_PATH_NOISE = 32.0
"""Variance of the paths, over that of a constant's, up to which ``functional`` is the default."""


@dataclass(frozen=True, kw_only=True)
class FunctionalQ(Config):
    """Options of functional Q-learning; :func:`resolve` fills in the options that are None from public facts.

    Attributes:
        variant: where the noise is added. By default ``functional`` if its proof holds by declared facts and its noise
            is the smaller (:func:`default_variant`), otherwise ``observed-reward``.
        calibration: ``verified``, or ``as-published`` for the calibration of dprl-papers, which certifies nothing.
        reward_radius: R, largest distance (sup norm) between two neighbouring reward functions; give this or
            ``people``.
        people: n, if the reward function is the mean of n people's reward functions. Replacing one person moves it by
            at most the width of the reward's bounds divided by n.
        reward_lipschitz: Lipschitz constant of the difference of two neighbours, over the observation scaled to [0, 1].
        mixed_derivatives: declares that R (L/R)^j bounds all mixed derivatives of order j of that difference. Without
            this, several dimensions have no proof.
        decay: beta of the kernel ``exp(-beta |x - y|)``; by default L/R, which is best, but at least 1.
        reward_of: what a reward depends on, as a public fact (functional): ``state`` for the state in which the action
            is taken, ``state-action`` for that state and the action. It may never depend on the next state, chance or
            time. By default what the environment declares.
        shared_path: one path for all actions, which protects only reward functions of the state; by default if rewards
            depend on the state only.
        memoise: one answer for each state and action of a finite environment (observed-reward).
        network: ``mlp:HIDDEN`` or ``fourier:ORDER`` (a linear function per action); by default ``fourier:3`` in the
            variants functional and gradient, ``mlp:32`` in observed-reward, and ``table:257`` in output.
        samples: number of environment steps, T.
        round: number of samples between two changes of the acting policy.
        discount: discount of returns; by default the environment's.
        step_size: step size of Adam, or of plain steps in the gradient variant. It falls to a tenth over the run.
        batch: number of replayed samples in one update.
        updates_per_sample: number of updates on replayed samples for each fresh sample.
        target_every: number of rounds between two copies of the weights to the target network.
        exploration: smallest probability of a random action.
        exploration_rounds: number of rounds over which that probability would fall linearly from 1 to 0; it stops at
            ``exploration``.
        average: release the mean weights of the second half of the rounds.
        actor_critic: act by a softmax policy that is improved using only the private Q, and release that policy too.
        clip_norm: clip norm of a Q-value's gradient with respect to the weights (gradient).
        noise_multiplier: noise multiplier to use instead of the calibrated one; refused if it costs more than the
            budget.
        published_std: sigma of the paths as published; by default from the formula of Theorem 5.
        resets: J, number of successive paths as published; by default a new path every round.
    """

    algorithm: ClassVar[str] = "functional-q"

    variant: Variant | None = None
    calibration: Literal["verified", "as-published"] = "verified"
    reward_radius: float | None = None
    people: int | None = None
    reward_lipschitz: float | None = None
    mixed_derivatives: bool = False
    decay: float | None = None
    reward_of: RewardOf | None = None
    shared_path: bool | None = None
    memoise: bool = False
    network: str | None = None
    samples: int = 5000
    round: int = 50
    discount: float | None = None
    step_size: float | None = None
    batch: int = 64
    updates_per_sample: float = 1.0
    target_every: int = 2
    exploration: float = 0.1
    exploration_rounds: int = 20
    average: bool = True
    actor_critic: bool = False
    clip_norm: float = 1.0
    noise_multiplier: float | None = None
    published_std: float | None = None
    resets: int | None = None

    ranges: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("samples", "round", "target_every", "exploration_rounds", "resets"), f"1..{MAX_SAMPLES}"),
        "batch": "1..65536",
        "people": "1..1000000000000",
        **dict.fromkeys(("reward_radius", "reward_lipschitz"), "(0, 1e50]"),
        **dict.fromkeys(("step_size", "updates_per_sample"), "(0, 1000]"),
        "clip_norm": "(0, 1e6]",
        **dict.fromkeys(("noise_multiplier", "published_std"), "(0, 1e9]"),
        "decay": f"[1, {LARGEST_DECAY:g}]",
        "discount": "[0, 1)",
        "exploration": "[0, 1]",
    }

    def claimed(self, facts: EnvironmentSpec, budget: Budget) -> LearningPlan | None:
        """Return the plan if these options belong to another distribution; None if dprl makes the plan."""
        del facts, budget
        return None

    def learn_q_function(self, environment: Any, facts: EnvironmentSpec, noise: Any) -> QFunction:
        """Return the Q-function that these options learn; only options with a plan of :meth:`claimed` have this."""
        raise NotImplementedError

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.samples // self.round

    @property
    def updates(self) -> int:
        """Number of updates of one round."""
        return max(1, math.floor(self.round * self.updates_per_sample + 0.5))


def _contradictions(c: FunctionalQ) -> Iterator[str]:
    """Yield a sentence for each contradiction among the options."""
    if c.samples % c.round:
        yield "samples must be a whole number of rounds"
    if c.updates > MAX_UPDATES:
        yield f"there may be at most {MAX_UPDATES} updates a round"
    for name in ("published_std", "resets"):
        if getattr(c, name) is not None:
            yield f"{name} is an option of calibration = 'as-published' alone"
    for name, variants in (
        ("decay", PATH_VARIANTS), ("reward_of", ("functional",)), ("shared_path", ("functional",)),
        ("mixed_derivatives", ("functional",)), ("reward_lipschitz", PATH_VARIANTS), ("memoise", ("observed-reward",)),
    ):  # fmt: skip
        if getattr(c, name) and c.variant not in variants:
            yield f"{name} is an option of the variant {' and '.join(variants)} alone"
    if c.shared_path and c.reward_of == "state-action":
        yield "one path protects rewards of the state alone, which reward_of = 'state-action' denies: leave one out"
    if c.actor_critic and c.variant in ("gradient", "output"):
        yield f"actor_critic needs replayed samples, which the variant {c.variant} has none of"


def resolve(config: FunctionalQ, facts: EnvironmentSpec) -> FunctionalQ:
    """Return the options with everything filled in that follows from public facts.

    Raises:
        DprlError: in one sentence: options contradict each other, the variant has no proof for this environment, or a
            fact is missing.
    """
    c = config
    if c.variant is None:
        c = c.replace(DERIVED, variant=default_variant(c, facts))
    for sentence in _contradictions(c):
        raise DprlError(f"{c.algorithm}: {sentence}.")
    derived = public_defaults(c, facts)
    radius = c.reward_radius
    if c.people is not None:
        of_one = facts.reward_range / c.people
        if radius not in (None, of_one):
            raise DprlError("functional-q: give either reward_radius or people, which says what the radius is.")
        radius = derived["reward_radius"] = of_one
    if radius is None:
        raise DprlError("functional-q: give reward_radius, or people where the reward is a mean over people.")
    if c.memoise and facts.finite is None:
        raise DprlError("functional-q: memoise needs an environment with finitely many states.")
    if c.variant not in PATH_VARIANTS:
        return c.replace(DERIVED, **derived)
    lipschitz = c.reward_lipschitz
    if lipschitz is None:
        if facts.reward_lipschitz is None:
            raise DprlError(f"functional-q: the variant {c.variant} needs reward_lipschitz.")
        # for the difference of two people's reward functions, scaled by the radius over the reward's range
        lipschitz = derived["reward_lipschitz"] = 2.0 * facts.reward_lipschitz * (radius / facts.reward_range)
    if any(not high > low for low, high in facts.observation):
        raise DprlError("functional-q: an observation component with a single value cannot be scaled to [0, 1].")
    if c.variant == "functional":
        _check_dimensions(c, facts)
        reward_of = derived["reward_of"] = _declared(c, facts)
        if c.decay is None:
            derived["decay"] = default_decay(radius, lipschitz)
        if c.shared_path is None:
            derived["shared_path"] = reward_of == "state"
    elif facts.dimensions != 1:
        raise DprlError("functional-q: the variant output has a proof for one observation component alone.")
    return c.replace(DERIVED, **derived)


def default_variant(c: FunctionalQ, facts: EnvironmentSpec) -> Variant:
    """Return the variant that public facts choose: ``functional`` if its proof holds and its noise is the smaller.

    With a path for each of m actions, the noise has ``m (1 + L/R)^d`` times the variance of a path for a constant,
    where d is the number of observation components. Beyond :data:`MOST_PATH_NOISE` noise on each observed reward does
    better. Several components need observations on the grid and bounded mixed derivatives.
    """
    reward_of = c.reward_of or ("state" if c.shared_path else facts.reward_of)
    lipschitz, radius = c.reward_lipschitz, c.reward_radius
    if radius is None and c.people is not None:
        radius = facts.reward_range / c.people
    if facts.reward_lipschitz is not None and radius is not None and facts.reward_range > 0.0:
        lipschitz = lipschitz or 2.0 * facts.reward_lipschitz * (radius / facts.reward_range)
    inside = facts.dimensions == 1 or (facts.dimensions <= 3 and facts.on_grid and c.mixed_derivatives)
    scaled = all(high > low for low, high in facts.observation)
    if c.memoise or reward_of is None or lipschitz is None or radius is None or not (inside and scaled):
        return "observed-reward"
    shared = reward_of == "state" if c.shared_path is None else c.shared_path
    noise = (1 if shared else facts.actions) * (1.0 + lipschitz / radius) ** facts.dimensions
    return "functional" if noise <= MOST_PATH_NOISE else "observed-reward"


def public_defaults(c: FunctionalQ, facts: EnvironmentSpec) -> dict[str, Any]:
    """Return the discount, network and step size that follow from the environment and the variant."""
    derived = dict[str, Any]()
    if c.discount is None:
        if not facts.discount < 1.0:
            raise DprlError("functional-q: the environment has discount 1: give a discount below 1.")
        derived["discount"] = facts.discount
    low, high = facts.reward_bounds
    if not high > low:
        raise DprlError("functional-q: the reward's bounds are one number: there is nothing to learn.")
    if c.network is None:
        derived["network"] = _DEFAULT_NETWORKS[c.variant or "observed-reward"]
    elif (c.variant == "output") != c.network.startswith("table:"):
        raise DprlError("functional-q: a table is what the variant output releases, and it releases nothing else.")
    if c.step_size is None:
        derived["step_size"] = 3.0 if c.variant == "gradient" else 3e-3
    return derived


def _declared(c: FunctionalQ, facts: EnvironmentSpec) -> RewardOf:
    """Return what a reward is a function of, as the environment or the options declare it."""
    reward_of = c.reward_of or ("state" if c.shared_path else facts.reward_of)
    if reward_of is None or reward_of not in typing.get_args(RewardOf):
        raise DprlError(
            "functional: the proof covers rewards of the state in which the action is taken, and of the action, not of "
            "the next state, chance or time: state reward_of = 'state' or 'state-action' where that is a public fact, "
            "or use observed-reward."
        )
    return reward_of


def _check_dimensions(c: FunctionalQ, facts: EnvironmentSpec) -> None:
    """Refuse several observation components if the proof of the functional variant does not cover them."""
    if facts.dimensions == 1:
        return
    if facts.dimensions > 3:
        raise DprlError("functional: paths have at most three observation components; use observed-reward.")
    if not facts.on_grid:
        raise DprlError(
            "functional: in several dimensions the proof needs observations on the grid of the path; use "
            "observed-reward."
        )
    if not c.mixed_derivatives:
        raise DprlError(
            "functional: in several dimensions a Lipschitz constant bounds nothing: state mixed_derivatives, or use "
            "observed-reward."
        )


def relation(config: FunctionalQ) -> RewardRelation:
    """Return which reward functions are neighbours in a release with these resolved options."""
    radius = filled(config.reward_radius)
    if config.variant not in PATH_VARIANTS:
        return RewardRelation(radius)
    return RewardRelation(
        radius, config.reward_lipschitz, of_state=bool(config.shared_path), mixed=config.mixed_derivatives
    )


def _attack(trials: int, **options: Any) -> Attack:
    return Attack(epsilon=0.9, delta=1e-4, options=options, trials=trials)


_SHORT = {"samples": 100, "round": 20, "batch": 8, "network": "mlp:4", "reward_radius": 0.01}
ALGORITHM = Algorithm(
    FunctionalQ,
    settings={
        "functional": Setting(FunctionalQ(variant="functional", **_SHORT)),
        "functional, one path": Setting(
            FunctionalQ(variant="functional", shared_path=True, actor_critic=True, **_SHORT)
        ),
        "observed reward": Setting(FunctionalQ(variant="observed-reward", **_SHORT)),
        "gradient": Setting(FunctionalQ(variant="gradient", **{**_SHORT, "network": "fourier:2"})),
        "output": Setting(FunctionalQ(variant="output", **{**_SHORT, "network": None})),
    },
    attacks=(
        _attack(400_000, variant="functional"),
        _attack(400_000, variant="functional", shared_path=True),
        _attack(400_000, variant="observed-reward", samples=50),
        _attack(400_000, variant="gradient", samples=1000, network="fourier:1"),
        _attack(20_000, variant="output"),
    ),
    canary="dprl.audits.attacks.reward_functions:canary_of_plan",
)
