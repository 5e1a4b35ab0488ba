"""Calls of an import string or a name, with arguments.

A call is one line of text, in settings and in the Welcome:

    my_package:Net(width=64, depths=[2, 2])        cross_entropy(label_smoothing=0.1)
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeflock.shared.errors import ConfigError

LONGEST = 4096
"""The most characters of a call."""


@dataclass(frozen=True, slots=True)
class Call:
    """A name and keyword arguments: numbers, booleans, text, None, and lists and dicts of them."""

    name: str
    arguments: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str, setting: str) -> "Call":
        """Parse the call in `text`; `setting` names its setting in errors. Raises ConfigError."""
        name, bracket, _ = text.partition("(")
        if not bracket:
            return cls(text, {})
        try:
            if len(text) > LONGEST:
                raise ValueError(f"{len(text)} characters")
            call = ast.parse(f"_{text[len(name) :]}", mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
                raise ValueError("no keyword arguments")
            arguments: dict[str, Any] = {}
            for keyword in call.keywords:
                if keyword.arg is None or keyword.arg in arguments:
                    raise ValueError(keyword.arg)
                arguments[keyword.arg] = ast.literal_eval(keyword.value)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise ConfigError(
                f"{setting} = {text[:200]!r} must be NAME or NAME(argument=value, ...), e.g. "
                "my_package:Net(width=64), with plain values"
            ) from error
        return cls(name.strip(), arguments)

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"

    @property
    def is_import_string(self) -> bool:
        """Whether it is an import string, package.module:Name."""
        return ":" in self.name
