"""The noise of central DP-SGD, by dp-accounting."""

import dp_accounting


def sampled_noise(chance: float, steps: int, epsilon: float, delta: float) -> float:
    """Return the least noise multiplier with which `steps` Poisson samples cost (epsilon, delta).

    Each example is in a batch with this chance (M. Abadi et al., CCS 2016).
    """
    return float(
        dp_accounting.calibrate_dp_mechanism(
            lambda: dp_accounting.rdp.RdpAccountant(range(2, 200)),
            lambda z: dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(chance, dp_accounting.GaussianDpEvent(z)), steps
            ),
            epsilon,
            delta,
            dp_accounting.LowerEndpointAndGuess(0.1, 1.0),
        )
    )
