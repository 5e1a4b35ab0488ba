"""25% of a core, 50kB/s: what settings may say."""

import pytest

from edgeflock.client.neighbour import rate_of, share_of
from edgeflock.shared.errors import ConfigError


@pytest.mark.parametrize(("text", "share"), [("", None), ("25%", 0.25), ("150%", 1.5), ("2.5%", 0.025)])
def test_a_share_of_a_core(text: str, share: float | None) -> None:
    assert share_of(text) == pytest.approx(share) if share else share_of(text) is None


@pytest.mark.parametrize("text", ["25", "0%", "0.5%", "-5%", "%", "nan%", "inf%", "a%", "25 percent"])
def test_a_share_that_is_none_says_what_is(text: str) -> None:
    with pytest.raises(ConfigError, match=r"client.cpu = '.*' must be a percentage of one core.* 25%"):
        share_of(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("", None), ("50kB/s", 50e3), ("50 kB/s", 50e3), ("1.5MB/s", 1.5e6), ("1kB/s", 1e3)]
)
def test_bytes_a_second(text: str, rate: float | None) -> None:
    assert rate_of(text) == rate


@pytest.mark.parametrize("text", ["50", "50kb/s", "0kB/s", "0.5kB/s", "-1MB/s", "50kB", "50 kB /s", "1GB/s"])
def test_a_rate_that_is_none_says_what_is(text: str) -> None:
    with pytest.raises(ConfigError, match="client.bandwidth = '.*' must be 1kB/s or more.* 50kB/s"):
        rate_of(text)
