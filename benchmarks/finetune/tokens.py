"""A vocabulary of byte pairs, and texts as token ids (`pip install tokenizers`)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]

END = "<|end|>"
"""The token after each document."""


def train_vocabulary(texts: Sequence[str], size: int, path: Path) -> None:
    """Write the vocabulary of `size` byte pairs that are most frequent in the texts, as JSON.

    R. Sennrich, B. Haddow and A. Birch, "Neural machine translation of rare words with subword units", 2016,
    section 3.2, on bytes.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


def encode(texts: Sequence[str], path: Path) -> list[NDArray[np.uint16]]:
    """The token ids of each text, by the vocabulary in the file `path`."""
    tokenizer = Tokenizer.from_file(str(path))
    end = tokenizer.token_to_id(END)
    return [np.array([*found.ids, end], np.uint16) for found in tokenizer.encode_batch(list(texts))]


def windows(ids: NDArray[np.uint16], context: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(x float32 [n, context], y int64 [n, context]): parts of the text in order, and their next tokens."""
    count = (len(ids) - 1) // context
    x, y = ids[: count * context], ids[1 : count * context + 1]
    return x.reshape(count, context).astype(np.float32), y.reshape(count, context).astype(np.int64)
