"""Where a model lies, as settings say; what stands in the way is named."""

import sys

import pytest

from edgeflock.server.descent import Part
from edgeflock.server.shards import open_place
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import parse


def test_without_shards_it_is_in_this_process() -> None:
    with open_place(parse().scale) as place:
        assert place is Part


def test_a_missing_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "edgeflock.server.shards.rays", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    scale = parse(overrides=["scale.shards=2"]).scale
    with (
        pytest.raises(ConfigError, match=r"scale.shards = 2 needs Ray: pip install '.*\[ray\]'"),
        open_place(scale),
    ):
        pass


def test_what_shards_cannot_do_is_refused_and_what_they_need_is_set() -> None:
    assert parse(overrides=["scale.shards=2"]).downlink.mode == "exact"
    assert parse().downlink.mode == "lossy"
    for overrides, words in (
        (["scale.shards=2", "downlink.mode=lossy"], "downlink.mode = 'lossy': it compares the whole model"),
        (["scale.ray=auto"], "set scale.shards, or leave scale.ray out"),
        (["scale.shards=2", "scale.ray=ray://host:1"], "must be HOST:PORT of a cluster"),
        (["scale.shards=2", "scale.ray=host"], "must be HOST:PORT of a cluster"),
        (["scale.shards=-1"], "scale.shards"),
        (["scale.shards=1025"], "scale.shards"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse(overrides=overrides)
        assert words in str(caught.value)
