"""Ways to coordinate and to step, by the names that papers give them: each the settings of its section."""


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


def Buffered(updates: int = 10, **settings: object) -> dict[str, object]:
    """So many updates make a step, each weighed by its staleness; nobody waits (J. Nguyen et al., 2022).

    >>> Buffered(4, learning_rate=0.1)
    {'mode': 'buffer', 'buffer': 4, 'rule': 'sqrt', 'learning_rate': 0.1}
    """
    return {"mode": "buffer", "buffer": updates, "rule": "sqrt", **settings}


def Elastic(**settings: object) -> dict[str, object]:
    """Devices keep parameters of their own, of which the model is the centre (S. Zhang et al., 2015)."""
    return {"mode": "elastic", **settings}


def Adam(**settings: object) -> dict[str, object]:
    """The server steps by Adam (D. Kingma and J. Ba, 2015). `settings` are others of [optimizer].

    >>> Adam(clip=5.0)
    {'kind': 'adam', 'clip': 5.0}
    """
    return {"kind": "adam", **settings}


def Momentum(beta: float = 0.9, **settings: object) -> dict[str, object]:
    """The server steps with momentum.

    >>> Momentum(0.8)
    {'kind': 'momentum', 'beta1': 0.8}
    """
    return {"kind": "momentum", "beta1": beta, **settings}
