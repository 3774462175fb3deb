"""From the artifacts of learning in an environment to the words and numbers of their page."""

from __future__ import annotations

import json
import math
from typing import Any

from dprl.report import charts, guarantee
from dprl.report.fields import items, leaves, section, span, text
from dprl.report.formatting import MISSING, as_number, clean, number, plain
from dprl.report.view import CERTIFICATE_SCHEMA, SEAL, status

_VARIANTS = {
    "functional": "functional noise: one random function, drawn once, is added to the reward function",
    "observed-reward": "noise on each reward that was observed",
    "gradient": "noise on the part of each update that has rewards in it",
    "output": "one random function an action, added to the optimal Q of a public model",
    "as-published": "Algorithm 1 as its paper has it",
}
_FACTS = {
    "horizon": ("Longest episode", "transitions"),
    "reward": ("Reward of one transition", ""),
    "actions": ("Possible actions", "number of different decisions"),
    "on_grid": ("Observations on the grid", "whether each is one of the places at which the noise is defined"),
    "reward_ignores_action": ("Reward ignores the action", "whether it is paid for the state alone"),
    "reward_lipschitz": ("Lipschitz constant", "of one person's reward function, over the scaled observation"),
    "finite": ("Numbers of states and actions", "where there are finitely many"),
    "transition_rate": ("Rate of the transitions", "how fast their probabilities change with the state"),
}


_WORDS = {
    "title": "Q-function",
    "protected": "the rewards",
    "secret": "the rewards themselves",
    "given": "the rewards\nbeen those of a neighbour",
    "neighbours": "reward functions",
    "one": "a reward",
    "same": "the same reward function",
    "source": "rewards",
    "none": "no reward",
}


def training_view(training: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """Everything the template prints of a Q-function, as text, booleans and charts."""
    training, certificate = cleaned(training, certificate)
    variant = text(training.get("variant"), MISSING)
    return learned_view(training, certificate) | {
        "answer": "q_function.html.j2",
        "words": _WORDS,
        "samples": plain(training.get("samples", MISSING)),
        "variant": variant,
        "variant_words": _VARIANTS.get(variant, variant),
        "curves": _curves(training),
    }


def cleaned(training: dict[str, Any], certificate: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both without what must not be printed, the certificate without its seal."""
    # through JSON first: a certificate in memory and one read from its file must give the same page
    training, certificate = (clean(json.loads(json.dumps(d, sort_keys=True))) for d in (training, certificate))
    return training, {k: v for k, v in certificate.items() if k not in SEAL}


def learned_view(training: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """What is printed of everything that is learned, whatever it is."""
    unit, units, unit_gloss = guarantee.unit_words(certificate)
    relation, relation_gloss = guarantee.relation(certificate, unit)
    noise, assumed = section(certificate.get("noise")), guarantee.assumed(certificate)
    return {
        "status": status(training, certificate),
        "certified": certificate.get("schema") == CERTIFICATE_SCHEMA,
        "secure": noise.get("secure") is True,
        "noise_source": text(noise.get("source"), MISSING),
        "environment": text(section(training.get("environment")).get("name"), "the environment"),
        "discount": plain(training.get("discount", MISSING)),
        "returns": [(name, number(as_number(value), 2)) for name, value in section(training.get("returns")).items()],
        "unit": unit,
        "units": units,
        "unit_gloss": unit_gloss,
        "relation": relation,
        "relation_gloss": relation_gloss,
        "reading": text(assumed.get("reading"), ""),
        "budget": guarantee.budget(training, certificate, unit),
        "released": text(certificate.get("released"), MISSING),
        "not_protected": [plain(line) for line in items(certificate.get("not_protected"))],
        "facts": _facts(section(assumed.get("environment"))),
        "hyper_parameters": guarantee.hyper_parameters(certificate),
        "preconditions": [
            (text(c.get("statement"), ""), c.get("holds") is True)
            for c in map(section, items(assumed.get("preconditions")))
        ],
        "mechanisms": guarantee.mechanisms(certificate, unit),
        "event": guarantee.event_lines(certificate.get("event")),
        "accountant": text(certificate.get("accountant"), ""),
        "request": leaves(section(training.get("request"))),
        "ledger": leaves(section(certificate.get("ledger"))),
        "versions": [(name, plain(v)) for name, v in sorted(section(certificate.get("versions")).items())],
    }


def _facts(environment: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(what, value, gloss) of every public fact about the environment."""
    rows = [
        (label, span(environment[key]), gloss)
        for key, (label, gloss) in _FACTS.items()
        if environment.get(key) is not None
    ]
    names = [text(name, "") for name in items(environment.get("observation_names"))]
    for i, pair in enumerate(items(environment.get("observation"))):
        named = i < len(names) and names[i]
        rows.append((f"Observation: {names[i]}" if named else f"Observation, component {i}", span(pair), ""))
    rows += [(f"Action, component {i}", span(pair), "") for i, pair in enumerate(items(environment.get("action")))]
    told = {"name", "observation", "observation_names", "action", *_FACTS}
    return rows + [(*row, "") for row in leaves({k: v for k, v in environment.items() if k not in told})]


def _curves(training: dict[str, Any]) -> dict[str, Any] | None:
    """Q along each component that is shown, what is chosen there, and what Q is made of."""
    function = section(training.get("q_function"))
    slices = []
    for piece in map(section, items(function.get("slices"))):
        grid = [as_number(v) for v in items(piece.get("grid"))]
        values = [[as_number(v) for v in items(row)] for row in items(piece.get("values"))]
        policy = [v for v in items(piece.get("policy")) if isinstance(v, int) and v >= 0]
        known = [v for row in (grid, *values) for v in row if v is not None and math.isfinite(v)]
        if len(grid) < 2 or not values or len(known) != len(grid) * (len(values) + 1) or len(policy) != len(grid):
            continue
        if len(values) > charts.ACTION_COLOURS:  # the best of them alone
            values = [[max(column) for column in zip(*values, strict=True)]]  # type: ignore[type-var]
        name = text(piece.get("name"), f"component {plain(piece.get('component', len(slices)))}")
        slices.append((name, grid, values, policy))
    if not slices:
        return None
    domain = charts.curve_domain([v for _, _, values, _ in slices for row in values for v in row])
    wide = len(slices) == 1
    actions = len(slices[0][2])
    components = len(items(section(training.get("environment")).get("observation"))) or len(slices)
    return {
        "actions": list(range(actions)) if actions > 1 else [],
        "actor": function.get("actor") is True,
        "made_of": _made_of(text(function.get("network"), MISSING), function.get("size")),
        "shown": "" if len(slices) == components else f"Shown: the first {len(slices)} of {components} measurements.",
        "charts": [
            (name, charts.action_curves(grid, values, policy, name, domain, wide))
            for name, grid, values, policy in slices
        ],
    }


def _made_of(network: str, size: Any) -> str:
    kind, _, count = network.partition(":")
    words = {
        "mlp": f"A neural network with one layer of {count} hidden units",
        "fourier": f"Products of cosines up to order {count}, an action",
        "table": f"A table of {count} points an action, with straight lines between them",
    }.get(kind, network)
    return f"{words} ({plain(size)} weights)." if isinstance(size, int) else f"{words}."
