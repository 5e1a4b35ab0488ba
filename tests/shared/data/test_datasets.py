"""Stored data by URI: read, scaled, shared out."""

import builtins
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from edgeflock.shared.data.datasets import Dataset, deal, deal_by_label, load
from edgeflock.shared.errors import ConfigError

COUNT = 23


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """23 numbered samples: x[i] = (i, -i), y[i] = i; and three to test with."""
    path = tmp_path / "data.npz"
    numbers = np.arange(COUNT)
    np.savez(
        path,
        x_train=np.stack([numbers, -numbers], axis=1).astype(np.float64),
        y_train=numbers.astype(np.uint8),
        x_test=np.ones((3, 2)),
        y_test=np.array([0.5, 1.5, 2.5]),
    )
    return path


def test_x_is_float32_and_classes_are_int64(archive: Path) -> None:
    data = load(f"npz:{archive}", "train")
    assert len(data) == COUNT
    assert data.x.dtype == np.float32
    assert data.y.dtype == np.int64
    assert data.x.tolist() == [[i, -i] for i in range(COUNT)]
    assert data.y.tolist() == list(range(COUNT))


def test_targets_that_are_no_classes_are_float32(archive: Path) -> None:
    data = load(f"npz:{archive}", "test")
    assert data.y.dtype == np.float32
    assert data.y.tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("of", [1, 2, 3, 8, COUNT])
def test_shares_are_disjoint_and_cover_everything(archive: Path, of: int) -> None:
    shares = [load(f"npz:{archive}?part={i}/{of}", "train").y.tolist() for i in range(1, of + 1)]
    assert sorted(sum(shares, [])) == list(range(COUNT))
    assert {len(share) for share in shares} <= {COUNT // of, -(-COUNT // of)}


@pytest.mark.parametrize("shares", [1, 2, 7, COUNT])
def test_dealt_out_are_the_shares_that_uris_name(archive: Path, shares: int) -> None:
    dealt = deal(load(f"npz:{archive}", "train"), shares)
    assert len(dealt) == shares
    for i, share in enumerate(dealt, 1):
        named = load(f"npz:{archive}?part={i}/{shares}", "train")
        assert share.x.tobytes() == named.x.tobytes()
        assert share.y.tolist() == named.y.tolist()


@pytest.mark.parametrize(("shares", "samples"), [(1, 5), (3, 10), (10, 10), (4, COUNT)])
def test_only_some_of_it_is_dealt_out(archive: Path, shares: int, samples: int) -> None:
    """Each sample once, in shares that differ by one at most, with what belongs to it."""
    data = load(f"npz:{archive}", "train")
    dealt = deal(data, shares, samples)
    numbers = [number for share in dealt for number in share.y.tolist()]
    assert len(numbers) == len(set(numbers)) == samples
    assert {len(share) for share in dealt} <= {samples // shares, -(-samples // shares)}
    assert all(share.x.tolist() == [[i, -i] for i in share.y.tolist()] for share in dealt)
    assert samples == COUNT or sorted(numbers) != list(range(samples)), "at random, not the first ones"
    again = deal(data, shares, samples)
    assert [share.y.tolist() for share in again] == [share.y.tolist() for share in dealt]


def test_a_share_keeps_samples_and_targets_together(archive: Path) -> None:
    data = load(f"npz:{archive}?part=2/4", "train")
    assert data.x.tolist() == [[i, -i] for i in data.y.tolist()]


def test_shares_are_dealt_at_random_but_always_alike(archive: Path) -> None:
    first = load(f"npz:{archive}?part=1/2", "train").y.tolist()
    assert load(f"npz:{archive}?part=1/2", "train").y.tolist() == first
    assert first not in (list(range(0, COUNT, 2)), list(range(12)), list(range(11)))


@pytest.mark.parametrize(
    ("stored", "shape"), [((4, 5, 6), (4, 1, 5, 6)), ((4, 3, 5, 6), (4, 3, 5, 6)), ((4, 9), (4, 9))]
)
def test_bytes_are_scaled_and_plain_images_get_a_channel(
    tmp_path: Path, stored: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).integers(0, 256, stored).astype(np.uint8)
    np.savez(tmp_path / "images.npz", x_train=x, y_train=np.zeros(4, np.int32))
    data = load(f"npz:{tmp_path / 'images.npz'}", "train")
    assert data.x.shape == shape
    expected = [float(np.float32(octet) / np.float32(255)) for octet in x.ravel().tolist()]
    assert data.x.ravel().tolist() == expected
    assert data.x.flags.c_contiguous


def test_floats_are_not_scaled(tmp_path: Path) -> None:
    x = np.full((2, 3, 3), 200.0, np.float32)
    np.savez(tmp_path / "floats.npz", x_train=x, y_train=np.zeros(2, np.int32))
    assert load(f"npz:{tmp_path / 'floats.npz'}", "train").x.tolist() == x.tolist()


def test_digits() -> None:
    train, test = load("digits:", "train"), load("digits:", "test")
    assert (len(train), len(test)) == (1797 - 359, 359)
    assert train.x.shape[1:] == (1, 8, 8)
    assert train.x.min() == 0
    assert train.x.max() == 1
    assert set(train.y.tolist()) == set(range(10))
    images = [image.tobytes() for image in (*train.x, *test.x)]
    everything = load("digits:?part=1/1", "train")
    assert everything.x.tobytes() == train.x.tobytes()
    assert len(images) == 1797
    reference = load_digits()
    inked = [(image / 16).astype(np.float32).tobytes() for image in reference.images]
    labels = [*train.y, *test.y]
    assert dict(zip(images, labels, strict=True)) == dict(zip(inked, reference.target, strict=True))
    parts = [load(f"digits:?part={i}/5", "train") for i in range(1, 6)]
    assert sorted(image.tobytes() for part in parts for image in part.x) == sorted(images[: len(train)])


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "data '': known are digits:, npz:"),
        ("my/a.csv", "; a table is csv:my/a.csv?label=COLUMN, where COLUMN is what to predict"),
        ("a.parquet", "; a table is parquet:a.parquet?label=COLUMN"),
        ("/my/a.npz", "; an archive of arrays is npz:/my/a.npz"),
        ("table:a.csv", "data 'table:a.csv': known are digits:, npz:"),
        ("digits:here", "digits takes no path"),
        ("digits:?shard=1", "option 'shard' is unknown; known are part"),
        ("digits:?part=", "part= must be I/N"),
        ("digits:?part=3", "part=3 must be I/N"),
        ("digits:?part=0/3", "part=0/3 must be I/N"),
        ("digits:?part=4/3", "part=4/3 must be I/N"),
        ("digits:?part=1/9999", "1 <= I <= N <= 1438"),
        ("digits:?part=-1/3", "part=-1/3 must be I/N"),
        ("digits:?part=1.5/3", "part=1.5/3 must be I/N"),
        ("digits:?part=²/3", "part=²/3 must be I/N"),
        ("npz:", "there is no such file"),
        ("npz:/nowhere/data.npz", "data 'npz:/nowhere/data.npz': there is no such file"),
    ],
)
def test_the_error_names_the_uri_and_what_is_wrong(uri: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(uri, "train")
    assert message in str(caught.value)


def test_a_missing_array_is_named_with_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, images=np.zeros(3), labels=np.zeros(3))
    with pytest.raises(ConfigError, match=f"'npz:{path}': has no array x_train; it holds images, labels"):
        load(f"npz:{path}", "train")


def test_data_that_are_not_split_train_only(tmp_path: Path) -> None:
    path = tmp_path / "stream.npz"
    x, y = np.arange(10, dtype=np.float32).reshape(5, 2), np.array([0, 1, 1, 0, 1], np.uint8)
    np.savez(path, x=x, y=y, feature_names=["a", "b"])
    data = load(f"npz:{path}", "train")
    assert data.x.tolist() == x.tolist()
    assert data.y.tolist() == y.tolist()
    with pytest.raises(ConfigError, match=f"'npz:{path}': has no array x_test; it holds x, y, feature_names"):
        load(f"npz:{path}", "test")
    np.savez(path, x=x, labels=y)
    with pytest.raises(ConfigError, match=f"'npz:{path}': has no array y; it holds x, labels"):
        load(f"npz:{path}", "train")
    np.savez(path, x=x, y=y, x_train=x[:3], y_train=y[:3])
    assert len(load(f"npz:{path}", "train")) == 3, "the split counts, if there is one"


def jpegs(path: Path, *images: bytes) -> str:
    """An archive with these files in a row, as training and test data; labels 0, 1, ..."""
    ends = np.cumsum([0, *map(len, images)])
    parts: dict[str, Any] = {
        "jpg": np.frombuffer(b"".join(images), np.uint8),
        "off": ends,
        "y": np.arange(len(images)),
    }
    np.savez(path, **{f"{name}_{split}": part for name, part in parts.items() for split in ("train", "test")})
    return f"npz:{path}"


def jpeg(*colour: int, size: tuple[int, int] = (16, 8)) -> bytes:
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.new("RGB" if len(colour) == 3 else "L", size, colour if len(colour) == 3 else colour[0]).save(
        out, "JPEG", quality=95
    )
    return out.getvalue()


def test_images_may_be_jpeg(tmp_path: Path) -> None:
    """Channels, rows, columns, from 0 to 1; each image its own bytes."""
    uri = jpegs(tmp_path / "colour.npz", jpeg(255, 0, 0), jpeg(0, 0, 255), jpeg(255, 255, 255))
    for split in ("train", "test"):
        data = load(uri, split)
        assert data.x.shape == (3, 3, 8, 16)
        assert data.x.dtype == np.float32
        assert data.y.tolist() == [0, 1, 2]
        found = data.x.mean(axis=(2, 3))
        assert np.abs(found - [[1, 0, 0], [0, 0, 1], [1, 1, 1]]).max() < 0.03
    assert load(jpegs(tmp_path / "grey.npz", jpeg(51)), "train").x.shape == (1, 1, 8, 16)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b"no image at all", "image 1 is no JPEG"),
        (b"", "image 1 is no JPEG"),
        ("cut short", "image 1 is no JPEG"),
        ("larger", r"image 1 is \[3, 8, 24\], image 0 is \[3, 8, 16\]"),
    ],
    ids=["other bytes", "nothing", "cut short", "larger"],
)
def test_jpeg_images_that_are_none_are_named(second: bytes | str, message: str, tmp_path: Path) -> None:
    made = {"cut short": jpeg(1, 2, 3)[:-20], "larger": jpeg(1, 2, 3, size=(24, 8))}
    other = made[second] if isinstance(second, str) else second
    uri = jpegs(tmp_path / "data.npz", jpeg(1, 2, 3), other)
    with pytest.raises(ConfigError, match=f"{uri}.*{message}"):
        load(uri, "train")


def test_jpeg_images_need_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = jpegs(tmp_path / "data.npz", jpeg(1, 2, 3))
    real = builtins.__import__

    def without_pillow(name: str, *rest: Any) -> Any:
        if name == "PIL":
            raise ImportError("No module named 'PIL'", name="PIL")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "PIL", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(ConfigError, match=r"need Pillow: pip install '.*\[images\]'"):
        load(uri, "train")


@pytest.mark.parametrize(("samples", "targets"), [(3, 2), (0, 0)])
def test_samples_and_targets_must_pair(tmp_path: Path, samples: int, targets: int) -> None:
    path = tmp_path / "odd.npz"
    np.savez(path, x_test=np.zeros((samples, 2)), y_test=np.zeros(targets))
    with pytest.raises(ConfigError, match=f"x_test has {samples} samples, y_test {targets}"):
        load(f"npz:{path}", "test")


@pytest.mark.parametrize("kind", ["text", "one array", "cut short", "empty", "objects"])
def test_a_file_that_is_no_archive_is_a_config_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data.npz"
    numbers = np.zeros(50)
    np.savez(path, x_train=np.array([{}] * 50) if kind == "objects" else numbers, y_train=numbers)
    if kind == "one array":
        np.save(tmp_path / "one.npy", numbers)
        (tmp_path / "one.npy").replace(path)
    elif kind == "text":
        path.write_text("no archive")
    elif kind == "cut short":
        path.write_bytes(path.read_bytes()[:-200])
    elif kind == "empty":
        path.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"data 'npz:.*data\.npz"):
        load(f"npz:{path}", "train")


class TestDealingByLabel:
    def data(self, classes: int = 10, each: int = 12) -> Dataset:
        y = np.tile(np.arange(classes), each)
        return Dataset(np.arange(y.size, dtype=np.float32)[:, np.newaxis], y)

    def test_one_label_each(self) -> None:
        shares = deal_by_label(self.data(), 10, 1)
        assert [set(share.y.tolist()) for share in shares] == [{label} for label in range(10)]
        assert [len(share) for share in shares] == [12] * 10

    def test_who_has_a_label_in_common_shares_it_evenly(self) -> None:
        shares = deal_by_label(self.data(), 20, 3)
        assert [set(share.y.tolist()) for share in shares[:4]] == [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 0, 1}]
        seen = np.concatenate([share.x[:, 0] for share in shares])
        assert sorted(seen.tolist()) == list(range(120)), "each sample once"
        assert {len(share) for share in shares} == {6}

    def test_what_cannot_be_dealt(self) -> None:
        with pytest.raises(ConfigError, match="fleet.labels = 11: the data have 10 classes"):
            deal_by_label(self.data(), 2, 11)
        with pytest.raises(ConfigError, match="class 0 has 1 samples for 2"):
            deal_by_label(self.data(each=1), 20, 1)
        targets = Dataset(np.zeros((4, 1), np.float32), np.zeros(4, np.float32))
        with pytest.raises(ConfigError, match="targets, not classes"):
            deal_by_label(targets, 2, 1)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int64])
def test_a_text_is_windows_of_tokens_with_the_next_ones(tmp_path: Path, kind: type) -> None:
    np.savez(tmp_path / "text.npz", x_train=np.arange(50, dtype=kind), x_test=np.arange(5, dtype=kind))
    uri = f"npz:{tmp_path / 'text.npz'}?context=4"
    train, test = (load(uri, split) for split in ("train", "test"))
    assert (train.x.shape, train.x.dtype.name, train.y.dtype.name) == ((12, 4), "float32", "int64")
    assert (train.x == np.arange(48).reshape(12, 4)).all()
    assert (train.y == train.x + 1).all()
    assert (test.x.tolist(), test.y.tolist()) == ([[0, 1, 2, 3]], [[1, 2, 3, 4]])
    assert len(load(uri + "&part=1/3", "train")) == 4


@pytest.mark.parametrize(
    ("context", "ids"),
    [
        *((word, np.arange(9)) for word in ("0", "-1", "x", "", "9", "10")),
        ("2", np.zeros((3, 3), int)),
        ("2", np.zeros(9, np.float32)),
        ("2", np.full(9, 1 << 24)),
        ("2", np.zeros((), int)),
        ("2", np.zeros(0, int)),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, context: str, ids: NDArray[np.generic]) -> None:
    np.savez(tmp_path / "text.npz", x=ids)
    with pytest.raises(ConfigError, match="number of tokens from 1 on, and x must be"):
        load(f"npz:{tmp_path / 'text.npz'}?context={context}", "train")
