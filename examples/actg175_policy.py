"""Target policies for the ACTG 175 trial. A state is (age in years, CD4 cells per mm3 at baseline).

Arms: 0 zidovudine, 1 zidovudine and didanosine, 2 zidovudine and zalcitabine, 3 didanosine.
"""

import numpy as np


def treat_low_cd4(states):
    """Give zidovudine and didanosine to patients with fewer than 350 CD4 cells, and only didanosine to the others."""
    low = states[:, 1] < 350.0
    return np.eye(4)[np.where(low, 1, 3)]


def zidovudine(states):
    return np.tile(np.eye(4)[0], (len(states), 1))


def zidovudine_didanosine(states):
    return np.tile(np.eye(4)[1], (len(states), 1))


def zidovudine_zalcitabine(states):
    return np.tile(np.eye(4)[2], (len(states), 1))


def didanosine(states):
    return np.tile(np.eye(4)[3], (len(states), 1))
