"""Language models, which paper 003 names as an application: users are prompts, and the policy is a small decoder.

A prompt is an instruction and four digits: ``s2731=``. Public text answers every instruction in two ways, and mostly
not in the way that users mean: ``s`` sorts downwards or upwards, and ``c`` copies backwards or forwards. A rule checks
each answer. No person's data are used.

Privacy unit: a prompt with everything that its user says about answers; each prompt is met once. Relation: zero out
one. Released: every noisy sum, hence every policy; or the reward model, from which a policy then follows without asking
any user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.ghost_clipping import ghost_sum_of_rows
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.step_noise import Correlation
from dprl_papers.paper_003_dp_pg.transformer import Transformer

DIGITS, INSTRUCTIONS = 4, 2
PROMPT = DIGITS + 2
SYMBOLS = "0123456789sc="
MEANT = 0.35
"""Share of public text that answers an instruction as users mean it."""
BATCH, GROUP = 64, 8  # prompts per step, answers per prompt
CLIP = 1.0
JUDGED = 4096  # held-out prompts
_PUBLIC, _USERS, _FREE, JUDGE = 31, 32, 33, 34  # seeds of JAX keys
START, GRADIENT, COMPARISONS = "public start", "policy gradient", "comparisons"
STEP, MOST = 0.65, 0.3
"""Step size in clips times the noise multiplier, and the largest step size: chosen on another seed."""
FREE_STEPS, FREE_RATE, HELD = 40, 3e-4, 0.3
SHARP = 4.0
"""Log-odds with which a user prefers a right answer to a wrong one."""


# --- the task ---------------------------------------------------------------------------------------------------------


def prompts_of(key: Any, count: int) -> Any:
    """Return ``(count, PROMPT)`` tokens of random prompts."""
    digits, kinds = random.split(key)
    instruction = 10 + random.randint(kinds, (count, 1), 0, INSTRUCTIONS)
    ends = jnp.full((count, 1), SYMBOLS.index("="))
    return jnp.concatenate([instruction, random.randint(digits, (count, DIGITS), 0, 10), ends], axis=1)


def answers_to(prompts: Any, meant: Any) -> Any:
    """Return ``(..., DIGITS)`` answers to prompts: the meant ones where ``meant`` is true, else the reverse."""
    digits = prompts[..., 1 : 1 + DIGITS]
    found = jnp.where(prompts[..., :1] == SYMBOLS.index("s"), jnp.sort(digits, axis=-1), digits)
    return jnp.where(jnp.asarray(meant)[..., None], found, found[..., ::-1])


def is_right(tokens: Any) -> Any:
    """Return 1 for each of the ``(..., L)`` sequences whose answer is the one that the user means, else 0."""
    return jnp.all(tokens[..., PROMPT:] == answers_to(tokens, True), axis=-1).astype(jnp.float32)


@partial(jax.jit, static_argnums=(1, 2))
def ascended(theta: Any, gradient: Any, steps: int, rate: float, key: Any, *given: Any) -> Any:
    """Return the weights after ascending ``gradient(theta, key, *given)`` by Adam, at a rate that falls linearly."""

    def one(state: Any, t: Any) -> tuple[Any, None]:
        theta, first, second = state
        g = gradient(theta, random.fold_in(key, t), *given)
        first, second = 0.9 * first + 0.1 * g, 0.98 * second + 0.02 * g * g
        mean, square = (m / (1.0 - d ** (t + 1.0)) for m, d in ((first, 0.9), (second, 0.98)))
        step = rate * (1.0 - t / steps) * mean / (jnp.sqrt(square) + 1e-8)
        return ((theta + step).astype(jnp.float32), first.astype(jnp.float32), second.astype(jnp.float32)), None

    nothing = jnp.zeros_like(theta)
    return jax.lax.scan(one, (theta, nothing, nothing), jnp.arange(steps))[0][0]


def in_group(rewards: Any) -> Any:
    """Return the weights of answers in a policy gradient: rewards minus their group's mean, over the group's size."""
    return (rewards - jnp.mean(rewards, axis=1, keepdims=True)) / rewards.shape[1]


def multiplier_of(epsilon: float, delta: float) -> float:
    """Return the noise multiplier with which one pass stays within the budget, by the accountant."""
    return noise_multiplier_for(events.gaussian, Budget(epsilon, delta))


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoder:
    """A decoder for the task: its training on public text, what users tell it, and how it learns from users.

    Attributes:
        model: the transformer, with its sizes.
        text_steps, text_rate: number of steps and rate of its training on public text.
    """

    model: Transformer
    text_steps: int = 4000
    text_rate: float = 3e-3

    @cached_property
    def start(self) -> Any:
        """The ``(d,)`` weights after training on public text, which answer right only sometimes."""
        return _start(self.model, self.text_steps, self.text_rate)

    @partial(jax.jit, static_argnums=0)
    def judged(self, theta: Any, key: Any) -> Any:
        """Return the share of right answers to held-out prompts, with one answer drawn for each."""
        first, second = random.split(key)
        return jnp.mean(is_right(self.model.answers(theta, prompts_of(first, JUDGED), DIGITS, second)))

    # --- privately: by policy gradient, or by comparisons -------------------------------------------------------------

    def mechanism_of(self, users: int, multiplier: float) -> GaussianSum:
        """Return the only mechanism that sees users' vectors: each in one batch, with noise correlated over batches."""
        return GaussianSum(
            parts=((self.model.size, CLIP),),
            steps=-(-users // BATCH),
            batch=BATCH,
            noise_multiplier=multiplier,
            relation="zero-out",
            correlation=Correlation("square-root"),
        )

    def sampled_answers(self, theta: Any, key: Any, answers: int) -> Any:
        """Return ``(BATCH, answers, L)`` tokens: new prompts, each with ``answers`` answers."""
        first, second = random.split(key)
        prompts = jnp.repeat(prompts_of(first, BATCH), answers, axis=0)
        return self.model.answers(theta, prompts, DIGITS, second).reshape(BATCH, answers, -1)

    def rated_answers(self, theta: Any, start: Any, key: Any) -> tuple[Any, Any]:
        """Return answers of the policy, and their weights if every user says which answers are right."""
        tokens = self.sampled_answers(theta, key, GROUP)
        return tokens, in_group(is_right(tokens))

    def compared_answers(self, theta: Any, start: Any, key: Any) -> tuple[Any, Any]:
        """Return two answers of the start, and their weights in the gradient of a reward model's log-likelihood.

        Users prefer answers by the model of Bradley and Terry. The reward of an answer is its log-probability minus
        that at the start.
        """
        first, second = random.split(key)
        tokens = self.sampled_answers(start, first, 2)
        better, gains = is_right(tokens), self.gains_of(theta, start, tokens)
        prefers = random.bernoulli(second, jax.nn.sigmoid(SHARP * (better[:, 0] - better[:, 1])))
        sign = jnp.where(prefers, 1.0, -1.0).astype(jnp.float32)
        weight = sign * jax.nn.sigmoid(-sign * (gains[:, 0] - gains[:, 1]))
        return tokens, jnp.stack([weight, -weight], axis=1)

    def gains_of(self, theta: Any, start: Any, tokens: Any) -> Any:
        """Return ``(m, G)`` rewards of a reward model: log-probabilities of answers, minus those at the start."""
        flat = tokens.reshape(-1, tokens.shape[-1])
        gains = self.model.log_probs(theta, flat, DIGITS)[0] - self.model.log_probs(start, flat, DIGITS)[0]
        return gains.reshape(tokens.shape[:2])

    @partial(jax.jit, static_argnums=(0, 1))
    def _noisy_step(self, feedback: Any, theta: Any, start: Any, key: Any, rate: Any, noise: Any) -> Any:
        tokens, weights = feedback(theta, start, key)
        layers = self.model.layers_of(theta, tokens, weights, DIGITS)
        mechanism = self.mechanism_of(BATCH, 1.0).in_float()
        total = ghost_sum_of_rows(mechanism, layers, jnp.ones(BATCH, bool))
        return theta + (rate * mechanism.release(total, noise) / (BATCH * CLIP)).astype(jnp.float32)

    def trained(self, feedback: Callable[..., Any], users: int, multiplier: float, seed: int) -> Any:
        """Return the last weights of one pass over users, with floating-point noise.

        Args:
            feedback: what users say, :meth:`rated_answers` or :meth:`compared_answers`.
            users, multiplier: number of users, and the noise multiplier; 0 for no noise.
            seed: seed of users and noise.
        """
        mechanism = self.mechanism_of(users, multiplier or 1.0).in_float(noise_multiplier_override=multiplier)
        rate = min(MOST, STEP / multiplier) if multiplier else MOST
        bound = mechanism.bind(SeededNoise.from_seed(seed).stream("users"))
        key, theta = random.fold_in(random.key(_USERS), seed), self.start
        for t in range(mechanism.steps):
            falling = rate * (1.0 - t / mechanism.steps)  # falls linearly to zero
            theta = self._noisy_step(feedback, theta, self.start, random.fold_in(key, t), falling, bound.draw(t))
        return theta

    def optimised(self, model: Any, seed: int) -> Any:
        """Return the policy that maximises a reward model on made-up prompts, which costs no privacy.

        The policy's gain in log-probability over the start, times :data:`HELD`, is subtracted from its reward, because
        a reward model knows nothing about answers that the start would not give.
        """
        key = random.fold_in(random.key(_FREE), seed)
        return ascended(self.start, self._of_reward, FREE_STEPS, FREE_RATE, key, model, self.start)

    def _of_reward(self, theta: Any, key: Any, model: Any, start: Any) -> Any:
        tokens = self.sampled_answers(theta, key, GROUP)
        weights = in_group(self.gains_of(model, start, tokens) - HELD * self.gains_of(theta, start, tokens))
        flat = tokens.reshape(BATCH * GROUP, -1)
        return jax.grad(lambda theta: weights.reshape(-1) @ self.model.log_probs(theta, flat, DIGITS)[0])(theta)


@cache
def _start(model: Transformer, steps: int, rate: float) -> Any:
    def of_text(theta: Any, key: Any, batch: int = 128) -> Any:
        """Return the gradient of the mean log-probability of new public text."""
        first, second = random.split(key)
        prompts = prompts_of(first, batch)
        tokens = jnp.concatenate([prompts, answers_to(prompts, random.bernoulli(second, MEANT, (batch,)))], axis=1)
        return jax.grad(lambda theta: jnp.mean(model.log_probs(theta, tokens, DIGITS)[0]))(theta)

    return ascended(model.start(random.key(_PUBLIC)), of_text, steps, rate, random.key(_PUBLIC))


SMALL = Decoder(model=Transformer(symbols=len(SYMBOLS), length=PROMPT + DIGITS - 1))


# --- what the figures measure -----------------------------------------------------------------------------------------


def measured(decoder: Decoder, way: str, users: int, epsilon: float | None, delta: float, seed: int, seeds: int) -> Any:
    """Return ``(seeds,)`` shares of right answers to held-out prompts; without an epsilon there is no noise."""
    multiplier = 0.0 if epsilon is None else multiplier_of(epsilon, delta)
    found = []
    for i in range(seed, seed + seeds):
        theta = decoder.start
        if way != START:
            feedback = decoder.rated_answers if way == GRADIENT else decoder.compared_answers
            theta = decoder.trained(feedback, users, multiplier, i)
        if way == COMPARISONS:
            theta = decoder.optimised(theta, i)
        found.append(float(decoder.judged(theta, random.fold_in(random.key(JUDGE), i))))
    return np.array(found)


# --- a policy that imitates favourites --------------------------------------------------------------------------------

FAVOURITES = "favourites of comparisons"
IMITATION_STEPS, IMITATION_RATE = 60, 1e-3
_IMITATE = 36  # seed of its JAX key


def imitating(model: Any, seed: int) -> Any:
    """Return the weights of the policy that imitates those answers of the start that a reward model likes best.

    A reward model knows only answers that the start gives. A policy that is free to look for other answers finds some
    that the model likes and no user does. A policy that imitates the favourite of eight answers cannot do so. It is
    made from released weights and made-up prompts, so it costs no privacy.
    """
    key = random.fold_in(random.key(_IMITATE), seed)
    return ascended(SMALL.start, _of_favourites, IMITATION_STEPS, IMITATION_RATE, key, model, SMALL.start)


def _of_favourites(theta: Any, key: Any, model: Any, start: Any) -> Any:
    """Return the gradient of the mean log-probability of the favourite answers."""
    tokens = SMALL.sampled_answers(start, key, GROUP)
    best = jnp.argmax(SMALL.gains_of(model, start, tokens), axis=1)
    chosen = jnp.take_along_axis(tokens, best[:, None, None], axis=1)[:, 0]
    return jax.grad(lambda theta: jnp.mean(SMALL.model.log_probs(theta, chosen, DIGITS)[0]))(theta)


def measured_favourites(users: int, epsilon: float | None, delta: float, seed: int, seeds: int) -> np.ndarray:
    """Return the same as :func:`measured` for the policies that imitate favourites."""
    multiplier = 0.0 if epsilon is None else multiplier_of(epsilon, delta)
    found = []
    for i in range(seed, seed + seeds):
        policy = imitating(SMALL.trained(SMALL.compared_answers, users, multiplier, i), i)
        found.append(float(SMALL.judged(policy, random.fold_in(random.key(JUDGE), i))))
    return np.array(found)
