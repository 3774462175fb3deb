"""Simulated logs of Pong on the Atari 2600, by the Arcade Learning Environment (Bellemare et al. 2013).

ALE is an extra, which only this module imports: ``pip install 'dprl[atari]'`` installs ale-py, which is licensed under
the GPL-2.0 and contains the game. As Machado et al. (2018) propose, a decision lasts four frames, and each frame
repeats the action of the previous frame with probability 0.25.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from dprl.bounds import Bounds, Interval
from dprl.environments.rollout import Columns, action_probabilities, log_columns
from dprl.errors import DprlError
from dprl.policies.loading import check_policy
from dprl.protocols import Policy

Observation = Literal["ram", "80x80"]
SIZES = {"ram": 128, "80x80": 6400}
"""Components of an observation: bytes of the memory, or pixels of the field."""
ACTIONS = 3
"""Stay, up, down."""
REWARD: Interval = (-1.0, 1.0)
"""1 for a point, -1 for a point of the opponent's."""
DISCOUNT = 0.95
HORIZON = 200
"""Decisions of a piece of a game."""
_FRAMES, _REPEAT = 4, 0.25
_BUTTONS = (0, 3, 4)  # ALE's numbers of: none, right, left


def atari_bounds(units: int, *, observation: Observation = "ram", horizon: int = HORIZON) -> Bounds:
    """Return the public bounds of a log of ``units`` trajectories; every byte and every pixel lies in [0, 255]."""
    return Bounds(
        units=units,
        horizon=horizon,
        reward=REWARD,
        observation=((0.0, 255.0),) * SIZES[observation],
        actions=ACTIONS,
    )


class Pong:
    """One console that plays game after game.

    Args:
        seed: seed of the console's coins, below 2^31.

    Raises:
        DprlError: ale-py is not installed.
    """

    def __init__(self, seed: int) -> None:
        try:
            import ale_py  # type: ignore[reportMissingImports]
        except ImportError:
            raise DprlError("ale-py is not installed; install it with: pip install 'dprl[atari]'.") from None
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.console = ale_py.ALEInterface()
        self.console.setInt("random_seed", seed)
        self.console.setInt("frame_skip", _FRAMES)
        self.console.setFloat("repeat_action_probability", _REPEAT)
        self.console.loadROM(ale_py.roms.get_rom_path("pong"))  # pyright: ignore[reportAttributeAccessIssue]

    def observe(self, observation: Observation = "ram") -> np.ndarray:
        """Return the observation, uint8: ``(128,)`` bytes of the memory, or ``(6400,)`` grey pixels of the field.

        The pixels are every second one of each row and column.
        """
        if observation == "ram":
            return self.console.getRAM()
        return self.console.getScreenGrayscale()[34:194:2, ::2].reshape(-1)

    def begin(self) -> None:
        """Begin a new game."""
        self.console.reset_game()

    def step(self, action: int) -> tuple[float, bool]:
        """Return the points won less the points lost in one decision, and whether the game is over."""
        reward = self.console.act(_BUTTONS[action])
        return float(reward), bool(self.console.game_over())

    def save(self) -> Any:
        """Return the state of the game, from which :meth:`restore` continues with the console's further coins."""
        return self.console.cloneState()

    def restore(self, state: Any) -> None:
        """Continue from a saved state."""
        self.console.restoreState(state)


def atari_log(
    policy: Policy,
    seed: int,
    episodes: int,
    *,
    observation: Observation = "ram",
    horizon: int = HORIZON,
    progress: Callable[[int], None] | None = None,
) -> Columns:
    """Simulate ``episodes`` trajectories of Pong; the columns are those of :func:`~dprl.environments.rollout.rollout`.

    A trajectory is a piece of a game. It ends with the game or after ``horizon`` decisions, and the next trajectory
    continues where it was cut. With a horizon that no game reaches, trajectories are whole games.

    Args:
        policy: states ``(N, d)`` float32 to probabilities ``(N, 3)`` of stay, up and down, row by row.
        seed: seed of the consoles and of the actions.
        episodes: number of trajectories.
        observation: ``ram``, the 128 bytes of the memory, or ``80x80``, the pixels of the field.
        horizon: decisions after which a trajectory is cut.
        progress: function that is called with the number of trajectories that are done.

    Raises:
        DprlError: a number or the observation is out of range, ale-py is not installed, or the policy does not give
            probabilities.
    """
    if episodes < 1 or horizon < 1 or seed < 0:
        raise DprlError("pong: episodes and horizon must be at least 1 and the seed at least 0.")
    if observation not in SIZES:
        raise DprlError(f"pong: there is no observation {observation!r}; use {' or '.join(SIZES)}.")
    check_policy(policy, atari_bounds(episodes, observation=observation, horizon=horizon))
    # whole games run side by side; of cut games, some 20 pieces follow each other on one console
    side_by_side = min(episodes, 16) if horizon > 2000 else max(1, min(episodes // 20, 16))
    counts = [len(part) for part in np.array_split(np.arange(episodes), side_by_side)]
    consoles = [_Console(seed, i, count, observation, horizon) for i, count in enumerate(counts)]
    running: Sequence[_Console] = consoles
    while running:
        states = np.stack([console.observed for console in running]).astype(np.float32)
        answer = action_probabilities(policy, states, ACTIONS)
        running = [console for console, row in zip(running, answer, strict=True) if console.step(row)]
        if progress is not None:
            progress(episodes - sum(console.left for console in consoles))
    return log_columns([trajectory for console in consoles for trajectory in console.trajectories])


class _Console:
    """One console and the trajectories that are played on it."""

    def __init__(self, seed: int, number: int, episodes: int, observation: Observation, horizon: int) -> None:
        coins, draws = np.random.SeedSequence([seed, number]).spawn(2)
        self.game = Pong(int(coins.generate_state(1)[0] >> 1))
        self.draws = np.random.default_rng(draws)
        self.left, self.horizon = episodes, horizon
        self.observation: Observation = observation
        self.trajectories: list[list[tuple[Any, ...]]] = [[]]
        self.observed = self.game.observe(observation)

    def step(self, probabilities: np.ndarray) -> bool:
        """Take one decision, and tell whether trajectories are left to play."""
        action = int(self.draws.choice(ACTIONS, p=probabilities / probabilities.sum()))
        reward, over = self.game.step(action)
        following = self.game.observe(self.observation)
        played = self.trajectories[-1]
        cut = not over and len(played) + 1 == self.horizon
        played.append((self.observed, following, action, reward, probabilities[action], over, cut))
        if over:
            self.game.begin()
            following = self.game.observe(self.observation)
        self.observed = following
        self.left -= over or cut
        if (over or cut) and self.left > 0:
            self.trajectories.append([])
        return self.left > 0
