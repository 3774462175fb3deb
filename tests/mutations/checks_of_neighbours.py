"""The checks of what enters the mechanisms of neighbours: everything is released as users release it."""

from __future__ import annotations

from collections.abc import Callable

from dprl.audits.log_neighbours import Found, log_neighbours
from dprl.audits.reward_neighbours import reward_neighbours
from dprl.audits.user_neighbours import name_neighbours, user_neighbours
from dprl.registry import find_audited

from .lab import Lab, require


def _hold(found: Found) -> None:
    require(not found.problems, f"{found.setting}: {found.problems[0] if found.problems else ''}")


def neighbours_in_logs(lab: Lab) -> None:
    # where products are cut a vector has no negative parts
    _hold(log_neighbours(find_audited("importance-sampling"), "trajectory", lab.folder()))


def neighbours_in_logs_of_one_decision(lab: Lab) -> None:
    # where nothing is cut the largest vector stands in every log
    _hold(log_neighbours(find_audited("importance-sampling"), "one decision", lab.folder()))


def neighbours_among_sampled_people(lab: Lab) -> None:
    _hold(user_neighbours(find_audited("dp-pg"), "resampled", lab.folder(), source="arrays"))


def neighbours_in_places_of_a_log(lab: Lab) -> None:
    _hold(user_neighbours(find_audited("dp-pg"), "square root", lab.folder(), source="arrays"))


def neighbours_among_those_who_arrive(lab: Lab) -> None:
    _hold(user_neighbours(find_audited("dp-pg"), "square root", lab.folder(), source="stream"))


def neighbours_without_names(lab: Lab) -> None:
    _hold(name_neighbours(find_audited("dp-pg"), "square root", lab.folder()))


def neighbours_in_environments_that_compare_equal(lab: Lab) -> None:
    del lab
    _hold(reward_neighbours(find_audited("functional-q"), "observed reward", kind="equal"))


CHECKS: dict[str, Callable[[Lab], None]] = {
    check.__name__.replace("_", " "): check
    for check in (
        neighbours_in_logs,
        neighbours_in_logs_of_one_decision,
        neighbours_among_sampled_people,
        neighbours_in_places_of_a_log,
        neighbours_among_those_who_arrive,
        neighbours_without_names,
        neighbours_in_environments_that_compare_equal,
    )
}
