"""A Python generator as a stream, for data that no other source can read.

    python:package.module:name           a generator function that can be imported
    python:./my.py:name                  one in a file
    python:./my.py:name?port=/dev/ttyS0  called with the remaining options: name(port="/dev/ttyS0")

It yields one sample after the other: a pair (x, y), or a mapping as messages are, {"x": ..., "y": ..., "key":
...} (client/data/messages.py, with the options there). x is a number, a list or an array. A sync generator
runs in its own thread and may block. An async one runs in the client's event loop. Both are asked for the
next sample when there is room for it. When the generator ends, the stream ends. An exception in it ends the
client.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import Any

from edgeflock.client.data.reading import OPTIONS, MessageReader
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources.handover import from_thread
from edgeflock.client.data.uri import Uri
from edgeflock.shared.errors import ConfigError

QUEUE_SIZE = 512
"""Maximum number of waiting samples."""

Message = Mapping[str, Any]


async def run_generator(
    uri: Uri, tally: Skipped, function: Callable[..., Any] | None = None
) -> AsyncGenerator[StreamChunk, None]:
    """Yield the generator's samples. With `function` the URI is only a name for display."""
    own, rest = uri.split(*OPTIONS)
    reader = MessageReader(uri, tally)
    function = function or _load(uri)
    try:
        inspect.signature(function).bind(**rest.options)
    except TypeError as error:
        raise uri.error(f"the options do not fit its arguments: {error}") from error
    except ValueError:
        pass  # it has no signature: the call will show
    try:
        made = function(**rest.options)
        if not isinstance(made, AsyncGenerator | Generator):
            raise uri.error(f"must be a generator function; it returned a {type(made).__name__}")
        several = _wrap_items(made) if isinstance(made, AsyncGenerator) else from_thread(made, QUEUE_SIZE)
        async with aclosing(several) as items:
            async for some in items:
                for chunk in reader.chunks((_message(item), None) for item in some):
                    yield chunk
    except ConfigError:
        raise
    except Exception as error:  # the user's own function may raise anything
        raise uri.error(f"it raised {type(error).__name__}: {error}") from error


async def _wrap_items(samples: AsyncGenerator[Any, None]) -> AsyncGenerator[list[Any], None]:
    async with aclosing(samples):
        async for item in samples:
            yield [item]


def _message(item: Any) -> Message:
    """Return a mapping as it is and a pair as a mapping. Anything else becomes an empty mapping."""
    if isinstance(item, Mapping):
        return item
    return {"x": item[0], "y": item[1]} if isinstance(item, tuple) and len(item) == 2 else {}


def _load(uri: Uri) -> Callable[..., Any]:
    place, _, name = uri.place.rpartition(":")
    if not place or not name:
        raise uri.error("must be python:package.module:generator or python:./file.py:generator")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        function: Callable[..., Any] = getattr(module, name)
    except Exception as error:  # the user's own module may raise anything
        raise uri.error(f"{type(error).__name__}: {error}") from error
    if not callable(function):
        raise uri.error(f"{name} is no function")
    return function


def _load_file(path: Path) -> ModuleType:
    """Load a file as a module. It can import modules from its folder."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    name = f"edgeflock_source_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "it ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
