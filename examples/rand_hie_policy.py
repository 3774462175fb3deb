"""Insurance plans of the RAND Health Insurance Experiment as policies. A state is the site where a family lived.

Plans: 0 free care, 1 a share of 25 or 50 percent, 2 a share of 95 percent, 3 an individual deductible.
"""

import numpy as np


def free_care(states):
    return np.tile(np.eye(4)[0], (len(states), 1))


def pay_a_part(states):
    return np.tile(np.eye(4)[1], (len(states), 1))


def pay_nearly_all(states):
    return np.tile(np.eye(4)[2], (len(states), 1))


def individual_deductible(states):
    return np.tile(np.eye(4)[3], (len(states), 1))
