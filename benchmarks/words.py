"""Words of a tagged corpus as vectors: what part of speech a word is, from its letters and its neighbours'.

    words_npz(Path("pos_ud_ewt.npz"), Path("words.npz"))

Of a word and the one before and after it, the word itself and its beginnings and ends of up to three letters
are each hashed to one of 1,024 features (K. Weinberger et al., "Feature hashing for large scale multitask
learning", ICML 2009).
"""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from torch import nn

FEATURES = 1024
_KEPT = {"train": 60_000, "test": 5_000}


class WordMLP(nn.Sequential):
    """1,024 features to 17 parts of speech by 256 hidden units; 266,769 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 17))


def words_npz(corpus: Path, path: Path) -> None:
    """Write the first words of each split of `corpus` (vocab, w_train, s_train, upos_train, ...).

    The archive has x_train (uint8 [n, 1024], 0 or 255), y_train, x_test and y_test.
    """
    with np.load(corpus) as arrays:
        parts = [_hashed(str(word)) for word in arrays["vocab"]]
        found: dict[str, NDArray[np.uint8]] = {}
        for split, kept in _KEPT.items():
            words, starts = arrays[f"w_{split}"][: kept + 1], set(arrays[f"s_{split}"].tolist())
            x = np.zeros((kept, FEATURES), np.uint8)
            for n in range(kept):
                around = (
                    (0, words[n]),
                    (1, None if n in starts else words[n - 1]),
                    (2, None if n + 1 in starts else words[n + 1]),
                )
                for place, word in around:
                    for part in [7919] if word is None else parts[word]:
                        x[n, (part + 104_729 * place) % FEATURES] = 255
            found[f"x_{split}"], found[f"y_{split}"] = x, arrays[f"upos_{split}"][:kept]
    np.savez(path, **found)  # type: ignore[arg-type]


def _hashed(word: str) -> list[int]:
    return [crc32(part.encode()) for part in _parts(word)]


def _parts(word: str) -> Iterator[str]:
    yield word.lower()
    yield f"case {word[:1].isupper()} {word.isupper()} {word.isalpha()}"
    for length in (1, 2, 3):
        yield f"{word[:length].lower()}-"
        yield f"-{word[-length:].lower()}"
