"""Folders of images: images:FOLDER, with a subfolder for each class, named after it.

    size=32         resize to 32 x 32 pixels, without regard to proportions; devices that leave it out
                    use the run's size
    channels=1      grey; the default 3 is red, green and blue

Images are read on demand and not kept, so a folder may be larger than memory.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.samples import Raw, Shape, Unread, missing_file
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command

OPTIONS = ("size", "channels")

SIZE, CHANNELS = 32, 3
"""The default size and channels."""

_MODES = {1: "L", 3: "RGB"}

_KINDS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def pictures(files: list[Path], chosen: Shape) -> Unread:
    """Return image files, which are read on demand. `chosen` is the user's [channels, height, width]."""

    def opened(first: int, shape: Shape) -> tuple[Callable[[int], NDArray[np.float32]], tuple[int, ...]]:
        wanted = shape or chosen or (CHANNELS, SIZE, SIZE)
        if chosen not in (None, wanted) or len(wanted) != 3 or wanted[0] not in _MODES:
            mine = list(chosen or (CHANNELS, SIZE, SIZE))
            raise ConfigError(
                f"data 'images:': samples of the run have the shape {list(wanted)}, and images {mine}; leave "
                "size and channels out to use the run's"
            )
        channels, height, width = wanted
        return lambda number: read_image(files[number], _MODES[channels], (width, height)), wanted

    return Unread(np.arange(len(files)), opened)


def read_images(path: str, options: Mapping[str, str]) -> Raw:
    """List the images of a folder. Raises ConfigError."""
    source = f"images:{path}"
    try:
        import PIL  # noqa: F401  checked before training
    except ImportError as error:
        raise ConfigError(f"data {source!r} needs Pillow: {install_command('images')}") from error
    for option in options:
        if not options[option].isdecimal() or not 1 <= int(options[option]) <= 4096:
            raise ConfigError(f"data {source!r}: {option}={options[option]} must be a number, e.g. size=32")
    channels = int(options.get("channels", CHANNELS))
    if channels not in _MODES:
        raise ConfigError(f"data {source!r}: channels={channels} must be 1 or 3")
    size = int(options.get("size", SIZE))
    try:
        folders = sorted(entry for entry in Path(path).iterdir() if entry.is_dir())
        files = [
            file
            for folder in folders
            for file in sorted(folder.iterdir())
            if file.suffix.lower() in _KINDS and not file.name.startswith(".")
        ]
    except FileNotFoundError as error:
        raise missing_file(source) from error
    except OSError as error:
        raise ConfigError(f"data {source!r}: cannot be read: {error}") from error
    if not files:
        raise ConfigError(
            f"data {source!r}: holds no images; there must be a folder for each class, with "
            f"{', '.join(_KINDS[:3])} or the like in it: {path}/cat/1.jpg"
        )
    y = np.array([file.parent.name for file in files])
    x = pictures(files, (channels, size, size) if options else None)
    return Raw(source, x, y, place=lambda sample: str(files[sample].relative_to(path)))


def files_in(folder: Path) -> list[Path]:
    """All image files of a folder and its subfolders, in order of their paths. Raises ConfigError."""
    if not folder.is_dir():
        raise missing_file(f"images:{folder}")
    files = (file for file in folder.rglob("*") if file.suffix.lower() in _KINDS)
    return sorted(file for file in files if not file.name.startswith(".") and file.is_file())


def read_image(path: Path, mode: str, size: tuple[int, int]) -> NDArray[np.float32]:
    """Read float32 [channels, height, width], 0 to 1, resized to (width, height). Raises ConfigError."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert(mode).resize(size, Image.Resampling.BILINEAR))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ConfigError(f"{path} is no readable image: {error}; replace or remove it") from error
    return np.ascontiguousarray(np.atleast_3d(pixels).transpose(2, 0, 1), np.float32) / np.float32(255)
