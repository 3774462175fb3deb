"""``dprl simulate`` and ``dprl data``: simulate a log that nobody is in, or look at a log and make one of a table.

Only the curator may look at rows: the commands of ``dprl data`` are for the curator alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dprl.cli import SETTINGS, Group
from dprl.cli.command import Command, Progress, print_result
from dprl.environments.simulators import SIMULATORS
from dprl.errors import Mistakes, require
from dprl.files import write_atomically

if TYPE_CHECKING:
    import numpy as np

    from dprl.bounds import Bounds
    from dprl.protocols import Policy

    Simulated = tuple[dict[str, np.ndarray], Bounds, dict[str, str]]

KNOWN = sorted([name for name, named in SIMULATORS.items() if named.logs] + ["pong"])


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
    from dprl.policies.loading import LOG_ONLY_POLICIES, load_policy

    policy = load_policy(spec, actions)
    known = "--policy must be uniform, FILE.py:function or a released policy's folder."
    require(not isinstance(policy, LOG_ONLY_POLICIES), f"A simulation has no log yet: {known}")
    return policy


def _own(name: str, policy: str, horizon: int | None, *, seed: int, episodes: int, progress: Progress) -> Simulated:
    require(name in KNOWN, f"Unknown environment {name!r}: use {', '.join(KNOWN)} or gymnasium:ID.")
    import jax

    from dprl.environments.rollout import environment_bounds, largest_ratio, rollout

    named = SIMULATORS[name]
    environment = named.load()()
    if horizon is not None:
        environment = replace(environment, horizon=horizon)
    behavior = _behavior(policy, environment.actions)
    columns = rollout(environment, behavior, jax.random.key(seed), episodes, progress=progress)
    ratio = largest_ratio(behavior, environment_bounds(environment, episodes))
    notes = {"observation": named.observation_comment} if named.observation_comment else {}
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
    from dprl.environments.gymnasium_adapter import bounds_for_check, describe, rollout_gymnasium, simulated_bounds
    from dprl.environments.rollout import largest_ratio

    identifier = name.partition(":")[2]
    facts = describe(identifier, horizon)
    behavior = _behavior(policy, facts.actions)
    columns = rollout_gymnasium(identifier, behavior, episodes=episodes, horizon=facts.horizon, **how)
    ratio = largest_ratio(behavior, bounds_for_check(facts, episodes))
    bounds = simulated_bounds(facts, columns, episodes, ratio)
    seen = "range that this simulation took"
    notes = {"reward": seen}
    if None in facts.observation:
        notes["observation"] = f"{seen}, where the environment declares none"
    return columns, bounds, notes


# --- for the curator --------------------------------------------------------------------------------------------------

data_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="For the curator alone: bounds to fill in, logs made of tables, what is in a log, and logs in parts.",
    **SETTINGS,
)


@data_app.command("template", cls=Command)
def template(
    log: Annotated[Path, typer.Argument(help="The log.")],
    out: Annotated[Path, typer.Option(help="New file for the public bounds.")] = Path("bounds.toml"),
    person_column: Annotated[str | None, typer.Option(help="Column that identifies the person.")] = None,
) -> None:
    """Write a bounds file to fill in, from the names and types of a log's columns: no row is read."""
    from dprl.data.bounds_file import PLACEHOLDER
    from dprl.data.template import bounds_template

    text = bounds_template(str(log), person_column)
    require(not os.path.lexists(out), f"{out.name!r} is there already: name another file with --out.")
    write_atomically(out, text.encode())
    typer.echo(
        f"{out}: say what is public wherever it says {PLACEHOLDER}; then `dprl plan` says what a release would tell."
    )


@data_app.command("prepare", cls=Command)
def prepare(
    table: Annotated[Path, typer.Argument(help="The table: a .parquet or .csv file.")],
    bounds: Annotated[Path, typer.Option(help="TOML file with the public bounds and a section [prepare].")],
    out: Annotated[Path, typer.Option(help="New Parquet file for the log.")] = Path("log.parquet"),
) -> None:
    """Make a log of a table as people have it, by the section [prepare] of the bounds. Nothing is learned from rows."""
    from dprl.data.bounds_file import read_bounds_and_preparation
    from dprl.data.readers import prepare as make

    with Progress():
        made, (_, declared) = make(str(table), bounds, out), read_bounds_and_preparation(bounds)
    typer.echo("NOT private: the log holds what the table holds, and is to be kept as it is.")
    typer.echo(f"{out}: {', '.join(name for name in made.schema.names if not name.startswith('observation_'))}")
    for i, component in enumerate(declared.components() if declared else ()):
        typer.echo(f"observation_{i}: {component}")
    typer.echo(f"`dprl data describe {table} --bounds {bounds}` tells the curator how many contribute, and why not.")


@data_app.command("describe", cls=Command)
def describe(
    log: Annotated[Path, typer.Argument(help="The log.")],
    bounds: Annotated[Path | None, typer.Option(help="TOML file with the public bounds.")] = None,
    unit: Annotated[str | None, typer.Option(help="Privacy unit: person, trajectory or transition.")] = None,
    person_column: Annotated[str | None, typer.Option(help="Column that identifies the person.")] = None,
    behavior_policy: Annotated[str | None, typer.Option(help="Policy of a log without behavior_prob.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what the rows hold and why some contribute nothing.

    NOT private: for the curator's eyes, never to be released.
    """
    from dprl.data.describe import describe_log

    with Progress(quiet=as_json):
        found = describe_log(str(log), bounds, unit, person_column, behavior_policy)
    print_result(found, _words(found), as_json)


def _words(found: dict[str, Any]) -> Iterator[str]:
    yield "NOT private: for the curator's eyes, never to be released."
    for name, value in found.items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        words, of, column = name.partition(" ")
        yield f"{words.replace('_', ' ') + of + column:<34} {shown}"


@data_app.command("partition", cls=Command)
def partition(
    logs: Annotated[Path, typer.Argument(help="The log: a .parquet or .csv file, or a folder of such files.")],
    out: Annotated[Path, typer.Option(help="New folder for the parts.")],
    by: Annotated[str | None, typer.Option(help="Column of the privacy unit, such as person_id.")] = None,
    parts: Annotated[int, typer.Option(help="How many parts; fewer are made where there are fewer units.")] = 64,
) -> None:
    """Write a log in parts that are aligned to the privacy unit, for `dprl evaluate` on logs larger than memory."""
    from dprl.data.partition import partition as write

    with Progress(doing="rows") as progress:
        written, layout = write(logs, by, parts, out, progress)
    size = sum(part.bytes + part.offsets_bytes + part.came_bytes for part in written.parts)
    typer.echo("NOT private: the parts hold what the log holds, and are to be kept as it is.")
    typer.echo(f"{len(written.parts)} parts by {layout.by}, {size / 1e6:.3g} MB, in {out}")
    for name in layout.left_out:
        typer.echo(f"left out, for it holds no numbers: column {name}")
