"""[privacy]: what it needs, and what does not go together with it, each with its reason."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings import config

SERVER = ("privacy.mode=server", "privacy.noise=1", "privacy.devices=100", "coordination.mode=buffer")
LOCAL = (
    "privacy.mode=local",
    "privacy.noise=1",
    "privacy.delta=1e-5",
    "privacy.examples=100",
)

REFUSED = [
    (SERVER, ("coordination.mode=async",), "adds noise to sums of updates of bounded norms"),
    (SERVER, ("coordination.mode=tasks",), "adds noise to sums of updates of bounded norms"),
    (SERVER, ("coordination.mode=elastic",), "adds noise to sums of updates of bounded norms"),
    (SERVER, ("coordination.rule=adacomp",), "no other device's data decide"),
    (SERVER, ("coordination.mode=rounds",), "divides a private sum by that number"),
    (
        SERVER,
        ("coordination.mode=rounds", "coordination.quorum=9", "coordination.aggregate=median"),
        "a median has no such bound",
    ),
    (SERVER, ("coordination.mode=cohort", "coordination.rule=none", "privacy.tree=4"), "a round waits for"),
    (SERVER, ("coordination.base_batch=10",), "a device would choose its own weight"),
    (SERVER, ("coordination.gate=asp",), "which a gate would wait for"),
    (SERVER, ("defence.mode=clip",), "a defence's bound depends on others' updates"),
    (SERVER, ("defence.mode=score",), "a defence's bound depends on others' updates"),
    (SERVER, ("scale.shards=2",), "the sum of a whole update"),
    (SERVER, ("local.optimizer=adafactor",), "second moments and labels"),
    (SERVER, ("evaluation.on_devices=5",), "results on devices' own data"),
    (SERVER, ("injection.alpha=0.5", "injection.beta=0.5"), "samples, which devices would share"),
    (LOCAL, ("coordination.mode=elastic",), "elastic averaging exchanges parameters"),
    (LOCAL, ("coordination.mode=private",), "secret sums have the losses as well"),
    (LOCAL, ("local.momentum=0.5", "local.steps=2"), "a momentum starts again"),
    (LOCAL, ("coordination.mode=tasks",), "which tasks give to several devices"),
    (LOCAL, ("local.optimizer=adafactor",), "second moments and labels"),
    (LOCAL, ("evaluation.on_devices=5",), "results on devices' own data"),
    (LOCAL, ("model.personal=head",), "not to its own layers"),
    (LOCAL, ("privacy.tree=2",), "is the noise of the server's steps"),
    ((), ("privacy.noise=1",), "is a part of differential privacy"),
    (SERVER, ("privacy.examples=5",), "is the number of examples of a device"),
]


@pytest.mark.parametrize(("private", "other", "reason"), REFUSED)
def test_what_leaks_or_does_not_go_together_is_refused(
    private: tuple[str, ...], other: tuple[str, ...], reason: str
) -> None:
    config.parse(overrides=private)
    with pytest.raises(ConfigError, match=reason):
        config.parse(overrides=(*private, *other))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (("privacy.mode=server",), "privacy needs noise, or epsilon together with participations"),
        (("privacy.mode=server", "privacy.epsilon=2"), "privacy needs noise, or epsilon together"),
        (("privacy.mode=server", "privacy.noise=1"), "privacy needs delta, .* or set privacy.devices"),
        (("privacy.mode=local", "privacy.noise=1"), "number of examples of a device"),
        (("privacy.mode=local", "privacy.noise=1", "privacy.delta=1e-5"), "needs examples"),
        (("privacy.mode=server", "privacy.noise=-1"), "greater than or equal to 0"),
    ],
)
def test_what_it_needs_is_named(settings: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config.parse(overrides=settings)


def test_the_matrix_has_the_rows() -> None:
    from edgeflock.shared.settings.combinations import markdown

    assert "| `privacy.mode = 'server'` | `defence.mode = 'none'` |" in markdown()
