"""Methods to coordinate and to step, by their names in papers. Each returns the settings of a section."""


def AdaComp(**settings: object) -> dict[str, object]:
    """Apply each update at once, slower where others have changed the parameters (C. Hardy et al., 2017).

    A parameter's rate is divided by how often others have changed it since. `settings` are others of
    [coordination], such as learning_rate.

    >>> AdaComp(learning_rate=0.1)
    {'mode': 'async', 'rule': 'adacomp', 'learning_rate': 0.1}
    """
    return {"mode": "async", "rule": "adacomp", **settings}


def ASGD(**settings: object) -> dict[str, object]:
    """Apply each update at once, at a rate divided by its staleness (W. Zhang et al., 2015).

    The staleness is the number of versions since the update's base.
    """
    return {"mode": "async", "rule": "tau", **settings}


def Rounds(**settings: object) -> dict[str, object]:
    """Apply the updates of all devices together, weighted by samples (H. B. McMahan et al., 2017).

    `quorum` and `deadline` end a round without late devices. With `cohort`, so many devices take part in a
    round. With `tasks`, several devices hold a data shard.

    >>> Rounds(cohort=20)
    {'mode': 'cohort', 'rule': 'none', 'cohort': 20}
    """
    mode = next((name for name in ("cohort", "tasks") if name in settings), "rounds")
    return {"mode": mode, "rule": "none", **settings}


def Buffered(updates: int = 10, **settings: object) -> dict[str, object]:
    """Apply `updates` updates in one step, weighted by staleness, without waiting (J. Nguyen et al., 2022).

    >>> Buffered(4, learning_rate=0.1)
    {'mode': 'buffer', 'buffer': 4, 'rule': 'sqrt', 'learning_rate': 0.1}
    """
    return {"mode": "buffer", "buffer": updates, "rule": "sqrt", **settings}


def Elastic(**settings: object) -> dict[str, object]:
    """Devices keep their own parameters, and the model is their center (S. Zhang et al., 2015)."""
    return {"mode": "elastic", **settings}


def Adam(**settings: object) -> dict[str, object]:
    """Step with Adam on the server (D. Kingma and J. Ba, 2015). `settings` are others of [optimizer].

    >>> Adam(clip=5.0)
    {'kind': 'adam', 'clip': 5.0}
    """
    return {"kind": "adam", **settings}


def Momentum(beta: float = 0.9, **settings: object) -> dict[str, object]:
    """Step with momentum on the server.

    >>> Momentum(0.8)
    {'kind': 'momentum', 'beta1': 0.8}
    """
    return {"kind": "momentum", "beta1": beta, **settings}
