"""Files of the devices that an owner vouches for."""

from pathlib import Path

import pytest

from edgeflock.client.identity import vouched_in
from edgeflock.shared.errors import ConfigError


def test_identities_are_lines_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "vouched"
    file.write_text(f"# our six\n{'ab' * 32}  # north\n\n{'CD' * 32}\n")
    assert vouched_in(str(file)) == {b"\xab" * 32, b"\xcd" * 32}
    assert vouched_in("") == frozenset()


@pytest.mark.parametrize("content", ["", "# none\n", "abcd\n", "x" * 64])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "vouched"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"client\.vouched"):
        vouched_in(str(file))
    with pytest.raises(ConfigError, match="No such file"):
        vouched_in(str(tmp_path / "none"))
