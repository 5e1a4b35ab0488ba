"""Ways to coordinate, by the names that papers give them: each the settings of [coordination] for it."""


def AdaComp(**settings: object) -> dict[str, object]:
    """Each update at once, each parameter's rate divided by how often others have changed it meanwhile
    (C. Hardy et al., 2017). `settings` are others of [coordination], such as learning_rate.

    >>> AdaComp(learning_rate=0.1)
    {'mode': 'async', 'rule': 'adacomp', 'learning_rate': 0.1}
    """
    return {"mode": "async", "rule": "adacomp", **settings}


def ASGD(**settings: object) -> dict[str, object]:
    """Each update at once, its rate divided by how many versions have passed meanwhile (W. Zhang et al.,
    2015).
    """
    return {"mode": "async", "rule": "tau", **settings}


def Rounds(**settings: object) -> dict[str, object]:
    """The updates of all devices together, each by its share of the samples (H. B. McMahan et al., 2017);
    by `quorum` and `deadline` without those that are late. With `tasks`, of data shards that several devices
    hold.
    """
    return {"mode": "rounds", "rule": "none", **settings}


def Elastic(**settings: object) -> dict[str, object]:
    """Devices keep parameters of their own, of which the model is the centre (S. Zhang et al., 2015)."""
    return {"mode": "elastic", **settings}
