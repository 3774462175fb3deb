"""A small transformer decoder whose layers record their inputs, so that gradients can be clipped without being formed.

Vaswani et al. (2017), "Attention is all you need", with normalisation before each layer. All weights are one flat
vector, layer by layer in the order of use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.mechanisms.ghost_clipping import Dense, Lookup, RowLayer, Scale


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Decoder of given sizes.

    Attributes:
        symbols: number of symbols in the vocabulary.
        length: largest number of positions.
        width, heads, blocks, inner: width of a position's vector, number of attention heads, number of blocks, and
            number of units in a block's inner layer.
    """

    symbols: int
    length: int
    width: int = 32
    heads: int = 4
    blocks: int = 2
    inner: int = 64

    @cached_property
    def layers(self) -> tuple[tuple[type[RowLayer], int, int], ...]:
        """Kind, number of inputs (or rows of a table) and number of outputs of each layer."""
        k = self.width
        block = ((Scale, k, k), (Dense, k, 3 * k), (Dense, k, k), (Scale, k, k), (Dense, k, self.inner))
        tables = ((Lookup, self.symbols, k), (Lookup, self.length, k))
        return (*tables, *self.blocks * (*block, (Dense, self.inner, k)), (Scale, k, k), (Dense, k, self.symbols))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights, in order."""
        found: list[tuple[int, ...]] = []
        for kind, wide, out in self.layers:
            found += {Lookup: [(wide, out)], Dense: [(wide, out), (out,)], Scale: [(out,), (out,)]}[kind]
        return tuple(found)

    @property
    def size(self) -> int:
        """Number of weights d."""
        return sum(math.prod(shape) for shape in self.shapes)

    def split(self, theta: Any) -> list[Any]:
        """Return the arrays of weights from the flat vector."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        return [part.reshape(s) for part, s in zip(jnp.split(theta, ends[:-1]), self.shapes, strict=True)]

    def start(self, key: Any) -> Any:
        """Return ``(d,)`` random weights: gains of 1, tables of 0.1, layers of 1 over the root of their inputs."""
        found = []
        for i, (kind, wide, out) in enumerate(self.layers):
            std = wide**-0.5 if kind is Dense else 0.1
            drawn = std * random.normal(random.fold_in(key, i), (wide * out,), jnp.float32)
            rest = jnp.zeros(out, jnp.float32)
            found += {Lookup: [drawn], Dense: [drawn, rest], Scale: [rest + 1.0, rest]}[kind]
        return jnp.concatenate(found)

    def run(self, theta: Any, tokens: Any, taps: list[Any] | None = None) -> tuple[Any, list[Any]]:
        """Return scores ``(n, L, symbols)`` of the next tokens, and the input of each layer.

        Args:
            theta: ``(d,)`` weights.
            tokens: ``(n, L)`` tokens.
            taps: arrays that are added to each layer's output; the derivative by a tap is the derivative by that
                output.
        """
        weights, inputs = iter(self.split(theta)), []

        def layer(kind: type[RowLayer], x: Any) -> Any:
            if kind is Scale:
                x = x - jnp.mean(x, axis=-1, keepdims=True)
                x = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
                y = x * next(weights) + next(weights)
            else:
                y = next(weights)[x] if kind is Lookup else x @ next(weights) + next(weights)
            inputs.append(x)
            return y if taps is None else y + taps[len(inputs) - 1]

        n, length = tokens.shape
        places = jnp.broadcast_to(jnp.arange(length), tokens.shape)
        x = layer(Lookup, tokens) + layer(Lookup, places)
        for _ in range(self.blocks):
            seen = layer(Dense, layer(Scale, x)).reshape(n, length, 3, self.heads, -1)
            q, k, v = (seen[:, :, i] for i in range(3))
            scores = jnp.einsum("nlhi,nmhi->nhlm", q, k) * (self.width // self.heads) ** -0.5
            scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
            mixed = jnp.einsum("nhlm,nmhi->nlhi", jax.nn.softmax(scores, axis=-1), v)
            x = x + layer(Dense, mixed.reshape(n, length, self.width))
            x = x + layer(Dense, jax.nn.relu(layer(Dense, layer(Scale, x))))
        return layer(Dense, layer(Scale, x)), inputs

    def log_probs(self, theta: Any, tokens: Any, answer: int, taps: list[Any] | None = None) -> tuple[Any, list[Any]]:
        """Return the ``(n,)`` log-probabilities of the last ``answer`` tokens, and the input of each layer."""
        scores, inputs = self.run(theta, tokens[:, :-1], taps)
        logs = jax.nn.log_softmax(scores[:, -answer:], axis=-1)
        taken = jnp.take_along_axis(logs, tokens[:, -answer:, None], axis=-1)
        return jnp.sum(taken, axis=(1, 2)), inputs

    def layers_of(self, theta: Any, tokens: Any, weights: Any, answer: int) -> list[RowLayer]:
        """Return the layers of the units' objectives, which are sums of ``weights`` times log-probabilities of answers.

        Args:
            theta: ``(d,)`` weights.
            tokens: ``(m, G, L + 1)`` tokens, the G sequences of each unit.
            weights: ``(m, G)`` weights.
            answer: number of tokens of an answer.
        """
        units, (n, length) = len(tokens), (tokens.shape[0] * tokens.shape[1], tokens.shape[2] - 1)
        taps = [jnp.zeros((n, length, out), jnp.float32) for _, _, out in self.layers]

        def objective(taps: list[Any]) -> tuple[Any, list[Any]]:
            logs, inputs = self.log_probs(theta, tokens.reshape(n, -1), answer, taps)
            return jnp.sum(weights.reshape(-1) * logs), inputs

        deltas, inputs = jax.grad(objective, has_aux=True)(taps)
        found: list[RowLayer] = []
        for (kind, lines, _), x, delta in zip(self.layers, inputs, deltas, strict=True):
            x, delta = (a.reshape(units, -1, *a.shape[2:]) for a in (x, delta))
            found.append(Lookup(x, delta, lines) if kind is Lookup else kind(x, delta))  # type: ignore[call-arg]
        return found

    def answers(self, theta: Any, prompts: Any, answer: int, key: Any) -> Any:
        """Return ``(n, P + answer)`` tokens: each prompt with an answer that is drawn from the policy."""
        tokens = prompts
        for i in range(answer):
            scores, _ = self.run(theta, tokens)
            drawn = random.categorical(random.fold_in(key, i), scores[:, -1])
            tokens = jnp.concatenate([tokens, drawn[:, None].astype(tokens.dtype)], axis=1)
        return tokens
