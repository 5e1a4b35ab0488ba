"""The words of a treebank as data for a tagger: windows of 20 words, and the Penn tag of each."""

from pathlib import Path

import numpy as np

from edgeflock.shared.errors import ConfigError

WINDOW = 20


def make_words(source: Path, target: Path) -> None:
    """Leave x (float32 [n, 20]) and y (int64 [n, 20]) of both splits of `source` in `target`.

    Sentences follow each other as in the text, windows go across them, what is left at the end is left out.
    Raises ConfigError if it is no such archive.
    """
    if not source.is_file():
        raise ConfigError(f"data 'npz:{source}': there is no such file")
    arrays = {}
    with np.load(source) as archive:
        for split in ("train", "test"):
            for name, key in (("x", "w"), ("y", "xpos")):
                if f"{key}_{split}" not in archive:
                    raise ConfigError(f"data 'npz:{source}': has no array {key}_{split}")
                words = archive[f"{key}_{split}"]
                whole = words[: words.size // WINDOW * WINDOW].reshape(-1, WINDOW)
                arrays[f"{name}_{split}"] = whole.astype(np.float32 if name == "x" else np.int64)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(target, **arrays)
