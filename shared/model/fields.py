"""Inputs of models that take several: arrays by name, with the same number of samples."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Fields(Mapping[str, NDArray[Any]]):
    """Arrays [n, ...] by name; `rows` selects samples."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Raises ValueError if the arrays have different numbers of samples."""
        self._arrays = dict(arrays)
        if len({len(array) for array in self._arrays.values()}) != 1:
            counts = ", ".join(f"{name} has {len(array)}" for name, array in self._arrays.items())
            raise ValueError(f"fields must be of as many samples each: {counts}")

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def rows(self, selection: Any) -> "Fields":
        """The fields of the chosen samples."""
        return Fields({name: array[selection] for name, array in self._arrays.items()})


Inputs: TypeAlias = Any
"""x of some samples: float32 [n, ...], or Fields. Any, because most users have one input or pass it on."""


def rows(x: Inputs, selection: Any) -> Inputs:
    """Return x of the chosen samples."""
    return x.rows(selection) if isinstance(x, Fields) else x[selection]


def copy_inputs(x: Inputs) -> Inputs:
    return Fields({name: array.copy() for name, array in x.items()}) if isinstance(x, Fields) else x.copy()


def concatenate_inputs(parts: list[Inputs]) -> Inputs:
    if isinstance(parts[0], Fields):
        return Fields({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return np.concatenate(parts)


def arrays_by_name(x: Inputs) -> dict[str, NDArray[Any]]:
    """Return the arrays by their names in graphs: x, or x/NAME of each field."""
    return {f"x/{name}": array for name, array in x.items()} if isinstance(x, Fields) else {"x": x}


def describe_shape(x: Inputs) -> str:
    """The shape of a sample, as text."""
    if isinstance(x, Fields):
        return ", ".join(f"{name} {list(array.shape[1:])}" for name, array in x.items())
    return str(list(x.shape[1:]))
