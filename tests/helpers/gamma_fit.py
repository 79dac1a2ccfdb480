"""The least-squares fit of `CORRECTION` in numerics/counter_gamma.py (and of its copy in kernels/source/gamma.h).

python tests/helpers/gamma_fit.py
"""

from __future__ import annotations

import numpy as np
from scipy import special

POWERS_OF_T, POWERS_OF_U = 10, 6
SMALLEST_TAIL = 1e-11
"""Draws beyond this share of either tail are left out."""


def samples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Concentrations a, roots v, and the correction that makes the slope of log G that of the quantiles of Gamma(a + 1)."""
    u = np.cos(np.linspace(0.0, np.pi, 121)[:-1])
    v = 1.9 + 1.5 * np.cos(np.linspace(0.0, np.pi, 161))
    a, v = (grid.ravel() for grid in np.meshgrid(4.0 / (3.0 * (u + 1.0)) - 2.0 / 3.0, v, indexing="ij"))
    d = a + 2.0 / 3.0
    boosted = d * v**3
    below, above = special.gammainc(a + 1.0, boosted), special.gammaincc(a + 1.0, boosted)
    used = (boosted >= 1.0) & (np.minimum(below, above) > SMALLEST_TAIL)
    a, v, d, boosted, below, above = (values[used] for values in (a, v, d, boosted, below, above))
    step = 1e-4 * np.sqrt(a + 1.0)
    moved = [
        np.where(below < 0.5, special.gammaincinv(b, below), special.gammainccinv(b, above))
        for b in (a + 1.0 - step, a + 1.0 + step)
    ]
    slope = (moved[1] - moved[0]) / (2.0 * step * boosted)
    return a, v, 1.5 * (v - 1.0) - v * (1.0 - slope * d)


def polynomial(a: np.ndarray, v: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """The correction by these coefficients."""
    u, t = 4.0 / (3.0 * (a + 2.0 / 3.0)) - 1.0, (v - 1.9) / 1.5
    found = np.zeros_like(a)
    for row in coefficients:
        found = found * t + np.polyval(row, u)
    return found


def fitted() -> np.ndarray:
    """The coefficients: least squares of the error of d times the slope."""
    a, v, correction = samples()
    u, t = 4.0 / (3.0 * (a + 2.0 / 3.0)) - 1.0, (v - 1.9) / 1.5
    columns = [u**i * t**j / v for j in reversed(range(POWERS_OF_T)) for i in reversed(range(POWERS_OF_U))]
    found, *_ = np.linalg.lstsq(np.stack(columns, 1), correction / v, rcond=None)
    return found.reshape(POWERS_OF_T, POWERS_OF_U)


if __name__ == "__main__":
    for row in fitted():
        print("    (" + ", ".join(f"{value:.8e}" for value in row) + "),")
