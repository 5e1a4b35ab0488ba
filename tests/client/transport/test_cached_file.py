"""What a hostile server may do with the files that a device downloads once."""

import hashlib
from pathlib import Path

import pytest

from edgeflock.client.transport.cached_file import BASE, CachedFile
from edgeflock.shared.errors import Malformed


def announced(folder: Path, content: bytes) -> CachedFile:
    return CachedFile(folder, BASE, hashlib.sha256(content).digest(), len(content), "pi")


def test_a_server_that_always_announces_another_file_fills_no_disk(tmp_path: Path) -> None:
    contents = [bytes([number]) * 1000 for number in range(20)]
    for content in contents:
        cache = announced(tmp_path, content)
        assert cache.begin({"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Content-Length": "1000"})
        cache.add(content[:-1])
    assert len(list(tmp_path.iterdir())) == 4
    last = announced(tmp_path, contents[-1])
    assert last.missing == 1, "the last ones are resumed"
    last.add(contents[-1][-1:])
    assert last.complete() is not None


@pytest.mark.parametrize("range_", ["bytes 0-9/" + "9" * 5000, "bytes 5-9/10", "bytes 0-9/11"])
def test_a_range_without_sense_is_refused(tmp_path: Path, range_: str) -> None:
    cache = announced(tmp_path, bytes(10))
    headers = {"ETag": f'"{hashlib.sha256(bytes(10)).hexdigest()}"', "Content-Range": range_}
    with pytest.raises(Malformed, match="the server announced a base of the model of 10 bytes"):
        cache.begin({**headers, "Content-Length": "5"})
