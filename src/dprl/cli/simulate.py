"""``dprl simulate``: write a log of simulated trajectories and the public bounds that go with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dprl.cli.running import Progress
from dprl.environments.names import NAMES
from dprl.errors import Mistakes, require

if TYPE_CHECKING:
    import numpy as np

    from dprl.bounds import Bounds
    from dprl.protocols import Policy

    Simulated = tuple[dict[str, np.ndarray], Bounds, dict[str, str]]

KNOWN = sorted([name for name, named in NAMES.items() if named.logs] + ["pong"])


def simulate(
    environment: Annotated[str, typer.Argument(help=f"{', '.join(KNOWN)} or gymnasium:ID.")],
    out: Annotated[Path, typer.Option(help="Log to write: .parquet or .csv.")],
    episodes: Annotated[int, typer.Option(help="Number of trajectories.")] = 1000,
    policy: Annotated[
        str, typer.Option(help="Behaviour policy: uniform, FILE.py:function or the folder of a released policy.")
    ] = "uniform",
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    horizon: Annotated[int | None, typer.Option(help="Longest trajectory, in transitions.")] = None,
    bounds_out: Annotated[Path | None, typer.Option(help="Bounds to write; by default OUT.bounds.toml.")] = None,
) -> None:
    """Simulate a log that nobody is in, with the bounds that `dprl evaluate` asks for."""
    from dprl.environments.rollout import bounds_toml, check_output, write_log, write_text

    out = check_output(out)
    bounds_out = check_output(bounds_out or out.with_suffix(".bounds.toml"), (".toml",))
    mistakes = Mistakes()
    for name, value, least in (("--episodes", episodes, 1), ("--horizon", horizon, 1), ("--seed", seed, 0)):
        if value is not None and value < least:
            mistakes.add(f"{name} must be at least {least}.")
    mistakes.check()

    run = _gymnasium if environment.startswith("gymnasium:") else _pong if environment == "pong" else _own
    with Progress(episodes, doing="trajectories") as progress:
        columns, bounds, notes = run(environment, policy, horizon, seed=seed, episodes=episodes, progress=progress)
    notes = {
        "units": "trajectories that were simulated",
        "max_importance_ratio": "one over the least probability of the behaviour policy on public states",
        **notes,
    }
    write_log(columns, out)
    write_text(bounds_toml(bounds, notes), bounds_out)
    typer.echo(f"wrote {episodes} episodes, {len(columns['t'])} transitions, to {out} and their bounds to {bounds_out}")


def _behavior(spec: str, actions: int) -> Policy:
    from dprl.policies.loading import UNASKED, load_policy

    policy = load_policy(spec, actions)
    asked = "--policy must be uniform, FILE.py:function or a released policy's folder."
    require(not isinstance(policy, UNASKED), f"A simulation has no log yet: {asked}")
    return policy


def _own(name: str, policy: str, horizon: int | None, *, seed: int, episodes: int, progress: Progress) -> Simulated:
    require(name in KNOWN, f"Unknown environment {name!r}: use {', '.join(KNOWN)} or gymnasium:ID.")
    import jax

    from dprl.environments.rollout import environment_bounds, largest_ratio, rollout

    named = NAMES[name]
    environment = named.load()()
    if horizon is not None:
        environment = replace(environment, horizon=horizon)
    behavior = _behavior(policy, environment.actions)
    columns = rollout(environment, behavior, jax.random.key(seed), episodes, progress=progress)
    ratio = largest_ratio(behavior, environment_bounds(environment, episodes))
    notes = {"observation": named.observed} if named.observed else {}
    return columns, environment_bounds(environment, episodes, ratio), notes


def _pong(name: str, policy: str, horizon: int | None, *, episodes: int, **how: Any) -> Simulated:
    from dprl.environments.atari import ACTIONS, HORIZON, atari_bounds, atari_log
    from dprl.environments.rollout import largest_ratio

    bounds = atari_bounds(episodes, horizon=horizon or HORIZON)
    behavior = _behavior(policy, ACTIONS)
    columns = atari_log(behavior, episodes=episodes, horizon=bounds.horizon, **how)
    ratio = largest_ratio(behavior, bounds)
    notes = {"observation": "bytes of the console's memory", "units": "pieces of games that were simulated"}
    return columns, replace(bounds, max_importance_ratio=ratio), notes


def _gymnasium(name: str, policy: str, horizon: int | None, *, episodes: int, **how: Any) -> Simulated:
    from dprl.environments.gymnasium_adapter import check_bounds, describe, rollout_gymnasium, simulated_bounds
    from dprl.environments.rollout import largest_ratio

    identifier = name.partition(":")[2]
    facts = describe(identifier, horizon)
    behavior = _behavior(policy, facts.actions)
    columns = rollout_gymnasium(identifier, behavior, episodes=episodes, horizon=facts.horizon, **how)
    ratio = largest_ratio(behavior, check_bounds(facts, episodes))
    bounds = simulated_bounds(facts, columns, episodes, ratio)
    seen = "range that this simulation took"
    notes = {"reward": seen}
    if None in facts.observation:
        notes["observation"] = f"{seen}, where the environment declares none"
    return columns, bounds, notes
