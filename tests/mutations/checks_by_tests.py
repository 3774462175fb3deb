"""The checks that are tests of the suite: what they hold at length is not written a second time here.

Below them is one that asks more, of fewer people, than its test."""

from __future__ import annotations

from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.mechanisms.rounded_gaussian import MAX_STD

from ..accounting import test_advisories as advisories
from ..accounting import test_contract as contract
from ..environments import test_names as names
from ..evaluation import test_changing_noise as changing_noise
from ..evaluation import test_doubly_robust as doubly_robust
from ..evaluation import test_intervals as intervals
from ..evaluation import test_stratified_subgroups as stratified_subgroups
from ..evaluation import test_subgroups as subgroups
from ..evaluation.many_logs import LOGS, estimates, hits, several
from ..learning import test_environment_session as environment_session
from ..learning import test_plan as learning_plan
from ..learning import test_run_coins as run_coins
from ..mechanisms import test_filtered_sum as filtered_sum
from ..mechanisms import test_noisy_maximum as noisy_maximum
from ..release import test_people_as_neighbours as people
from ..release import test_private_rewards as private_rewards
from ..release.people import UNITS
from ..statistical import test_noise as noise
from ..statistical import test_rounded_gaussian as rounded_gaussian
from .lab import by_test, check, require

for test, given in (
    (intervals.test_a_ratio_declared_too_small_shows_in_the_weights, {}),
    (intervals.test_a_few_people_who_are_not_there_are_counted_though_weights_do_not_show_them, {"rate": 0.95}),
    (subgroups.test_the_interval_holds_where_the_number_of_people_is_noisy, {}),
    (intervals.test_a_sampling_error_comes_with_how_large_it_may_be, {}),
    (intervals.test_no_interval_leaves_the_declared_range_and_values_outside_are_said_to_be, {}),
    (intervals.test_hopeless_settings_are_refused_and_say_what_to_change, {}),
    (stratified_subgroups.test_no_unit_is_longer_than_the_clip_norm, {}),
    (doubly_robust.test_it_is_unbiased_for_every_value_function, {"seed": 0}),
    (doubly_robust.test_units_are_plain_sums, {"cumulative": 2.5}),
    (doubly_robust.test_no_unit_exceeds_its_clip_norm, {}),
    (doubly_robust.test_values_are_unbiased_around_what_was_learned_of_the_same_people, {}),
    (noise.test_scale_is_accepted_and_another_is_rejected, {"make": noise.SOURCES["secure"], "wrong": 1.5}),
    (rounded_gaussian.test_no_residue_is_rarer_than_another, {"std": MAX_STD, "modulus": 256}),
    (filtered_sum.test_the_norm_of_more_people_than_may_be_declared_is_cut, {}),
    (changing_noise.test_what_a_resumed_stage_has_spent_is_read_and_never_computed_again, {}),
    (environment_session.test_neighbours_stay_as_near_as_is_paid_for_whatever_is_observed, {"variant": "functional"}),
    (learning_plan.test_a_memo_where_the_proof_needs_one, {}),
    (learning_plan.test_the_plan_pays_for_all_that_is_released, {"setting": "functional"}),
    (run_coins.test_the_coins_of_a_release_are_words_of_chacha20_at_their_address, {}),
    (contract.test_epsilon_is_right, {"rate": 0.1, "multiplier": 2.0, "steps": 16, "delta": 1e-5}),
    (advisories.test_sampled_people_of_earlier_versions_are_withdrawn, {}),
    (noisy_maximum.test_the_winner_has_the_probabilities_of_permute_and_flip, {"scores": [5, 1005]}),
    (noisy_maximum.test_scores_are_rounded_toward_zero_and_only_differences_count, {}),
    (private_rewards.test_a_second_release_is_made_of_its_own_rewards, {"options": private_rewards.TINY}),
    (private_rewards.test_no_table_lies_in_the_compilation_cache, {}),
    (people.test_who_is_added_to_a_log_that_is_sampled_moves_the_sum_by_their_own_vector, {"people": UNITS}),
    (people.test_who_answers_otherwise_moves_their_own_batch_alone, {"answer": lambda policy: None}),
    (names.test_who_is_missing_answers_nothing, {"make": names.NOBODY["float32"]}),
):
    by_test(test, **given)


@check
def what_is_cut_is_counted() -> None:
    """Ten decisions whose products are cut, at a declared and at the derived bound."""
    for cumulative in (None, 4.0):
        generate, policy, bounds, truth = several(200, 0.9, cumulative)
        found = estimates(generate, policy, bounds, ImportanceSampling(discount=1.0))
        require(hits(found, truth) >= LOGS - 4, "intervals do not hold the value where ratios are cut")
