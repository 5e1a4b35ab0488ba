"""Modules that draw random numbers as they train, and that do not."""

from torch import nn


class Plain(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 2))


class Dropping(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 2))
