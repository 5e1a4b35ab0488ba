"""A torch model's training step and evaluation as ONNX, so that a device needs neither torch nor its code.

    theta/NAME        each parameter and buffer of the layout,   in, float32
                      and of the base of adapters
    x, y              a batch: inputs and targets                in, any first dimension
    x/NAME            instead of x, for a model with several     in, float32 or int64
                      inputs
    loss              mean over the batch                        out of both graphs
    gradient/NAME     of each parameter                          out of the training step
    buffer/NAME       the new value of each buffer               out of the training step
    right             the fraction of correct predictions,       out of the training step,
                      0 to 1                                     where the loss defines it
    output            what the module returned                   out of the evaluation
    output/0, ...     instead of output, if the module returns   out of the evaluation
                      several tensors

Each graph is compared with autograd before it is returned (gradient_check.py).
"""

import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.export import Dim
from torch.fx import GraphModule
from torch.onnx import ONNXProgram
from torch.onnx.errors import OnnxExporterError
from torch.utils._pytree import tree_leaves

from edgeflock.server.training_graph import tracing
from edgeflock.server.training_graph.blame import (
    first_difference,
    first_untranslated,
    module_that_calls,
    operator_in,
)
from edgeflock.server.training_graph.gradient_check import check_evaluation, check_step
from edgeflock.server.training_graph.operators.scanning import make_names_unique
from edgeflock.server.training_graph.operators.translations import TRANSLATIONS
from edgeflock.server.training_graph.tracing import Example
from edgeflock.shared.errors import BadGraph, NotExportable
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.step import RIGHT, outputs_of
from edgeflock.shared.graphs.writing import write
from edgeflock.shared.model.fields import Inputs, concatenate_inputs, copy_inputs, describe_shape, rows
from edgeflock.shared.model.lora import Lora
from edgeflock.shared.model.modules.building import Make, apply, to_tensors
from edgeflock.shared.model.torch_module import FlatModule

MIN_SAMPLES = 4
"""The least samples of an example batch. torch takes a dimension of one for a constant."""


_RULES = (
    "a forward() must not depend on the values of its input, nor on how many samples there are "
    "(x.shape[0] may shape things, len(x) is a constant)"
)


@dataclass(frozen=True, slots=True)
class ExportedGraphs:
    """A model as two serialised ONNX graphs."""

    step: bytes
    evaluation: bytes
    merged: bytes = b""
    """The evaluation of a model without adapters, if the others have such."""


def export_model(
    module: str,
    loss: str,
    x: Inputs,
    y: NDArray[np.generic],
    make: Make | None = None,
    lora: Lora | None = None,
) -> ExportedGraphs:
    """The graphs of the torch module that the import string `module` names, or `make` builds.

    With `lora`, the step is of its adapters, and `merged` is the evaluation of the module without them. x and
    y are a batch of the model's data, of at least one sample. Raises NotExportable, which names the module or
    operator that prevents it, and ConfigError without such a module or with unfit data.
    """
    flat = FlatModule(module, loss, make=make, lora=lora)
    repeat = -(-MIN_SAMPLES // len(y))
    x = rows(concatenate_inputs([x] * repeat), slice(2 * MIN_SAMPLES))
    y = np.concatenate([y] * repeat)[: 2 * MIN_SAMPLES]
    example = tracing.Example.from_batch(flat, x, y)
    try:
        right = flat.gradient(flat.theta(), copy_inputs(x), y).right
        count = len(tree_leaves(apply(flat.evaluation_module(flat.theta()), to_tensors(copy_inputs(x)))))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise NotExportable(
            f"model.module {module!r} does not fit inputs {describe_shape(x)} with targets {y.dtype}: {error}"
        ) from error
    outputs_of_step = [*outputs_of(flat.layout), *([] if right is None else [RIGHT])]
    returned = ["output"] if count == 1 else [f"output/{place}" for place in range(count)]
    step = _export(example, tracing.training_step(example), True, outputs_of_step, check_step, x, y)

    def evaluation(example: Example) -> bytes:
        return _export(
            example, tracing.evaluation(example), False, ["loss", *returned], check_evaluation, x, y
        )

    if lora is None:
        return ExportedGraphs(step, evaluation(example))
    merged = Example.from_batch(FlatModule(module, loss, make=make), x, y)
    return ExportedGraphs(step, evaluation(example), evaluation(merged))


def _export(
    example: Example,
    function: tracing.Trace,
    training: bool,
    outputs: list[str],
    check: Callable[[FlatModule, bytes, Inputs, NDArray[np.generic]], str | None],
    x: Inputs,
    y: NDArray[np.generic],
) -> bytes:
    """Return `function` of the example as a graph that passes the `check` on a batch (x, y)."""
    flat = example.flat
    traced = _trace(example, function, training=training)
    graph = _canonical(flat, _to_onnx(example, traced, outputs).model_proto)
    try:
        wrong = check(flat, graph, x, y)
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise NotExportable(f"{flat.path}: its ONNX graph cannot run: {_first_line(error)}") from error
    if wrong:
        blamed = first_difference(_to_onnx(example, traced, outputs, optimize=False), example)
        reason = (
            f"the first operator that differs is {blamed}" if blamed else f"{_RULES}, nor on calls before"
        )
        raise NotExportable(f"{flat.path}: its ONNX graph differs from torch in {wrong}; {reason}")
    return graph


def input_names(flat: FlatModule, fields: Sequence[str] = ()) -> list[str]:
    """The names of a graph's inputs, in order. A graph lacks the inputs that it does not need."""
    batch = [f"x/{name}" for name in fields] or ["x"]
    layouts = (flat.layout, *(() if flat.base is None else (flat.base,)))
    return [*(f"theta/{tensor.name}" for layout in layouts for tensor in layout.tensors), *batch, "y"]


def _trace(example: Example, function: tracing.Trace, *, training: bool) -> GraphModule:
    path = example.flat.path
    try:
        with _quiet():
            graph = tracing.trace(example, function, training=training)
    except DynamicOutputShapeException as error:
        raise NotExportable(_untranslated_text(str(error.func), example)) from error
    except Exception as error:  # torch or the user's module may raise anything
        raise NotExportable(
            f"{path}: cannot be traced: {type(error).__name__}: {_first_line(error)}; {_RULES}"
        ) from error
    if asked := tracing.unsupported_max_pool(graph):
        pool = module_that_calls(asked, example)
        raise NotExportable(
            f"{path}: {pool} returns the indices of its maxima (return_indices), which has no export"
        )
    unknown = first_untranslated(graph)
    if unknown:
        raise NotExportable(_untranslated_text(unknown, example))
    return graph


def _to_onnx(
    example: Example, graph: GraphModule, outputs: list[str], *, optimize: bool = True
) -> ONNXProgram:
    flat, arguments, fields = example
    shapes = (*[None] * example.own, *[{0: Dim("batch")}] * (len(arguments) - example.own))
    try:
        with _quiet():
            program = torch.export.export(graph, arguments, dynamic_shapes=shapes, strict=False)
            exported = torch.onnx.export(
                program,
                dynamo=True,
                custom_translation_table=TRANSLATIONS,
                input_names=input_names(flat, fields),
                output_names=outputs,
                verbose=False,
                optimize=optimize,
            )
    except (OnnxExporterError, NotImplementedError) as error:
        text = _untranslated_text(operator_in(error), example)
        raise NotExportable(f"{text}: {_root_cause(error)}") from error
    except Exception as error:
        hint = f"; {_RULES}" if isinstance(error, UserError) else ""
        raise NotExportable(f"{flat.path}: {type(error).__name__}: {_first_line(error)}{hint}") from error
    assert exported is not None, "asked for with dynamo"
    return exported


def _untranslated_text(operator: str, example: Example) -> str:
    module = module_that_calls(operator, example)
    uses = f"{example.flat.path}: {module} uses {operator or 'an operator'}"
    return f"{uses}, which has no translation to ONNX (devices with torch can train it)"


def _canonical(flat: FlatModule, model: onnx.ModelProto) -> bytes:
    """The graph in its canonical form, without metadata for people. Raises NotExportable."""
    model.ClearField("producer_name")
    model.ClearField("producer_version")
    _clear(model.graph)
    model.ClearField("metadata_props")
    make_names_unique(model.graph)
    try:
        return write(read(model.SerializeToString(deterministic=True)))
    except BadGraph as error:
        raise NotExportable(f"{flat.path}: devices would refuse its ONNX graph: {error}") from error


def _clear(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _clear(attribute.g)
    for value in (*graph.input, *graph.output):
        value.ClearField("metadata_props")
    graph.ClearField("value_info")
    graph.ClearField("metadata_props")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the messages of torch's exporter.

    In a thread, only warnings are silenced, since other threads share the output.
    """
    if threading.current_thread() is not threading.main_thread():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
        return
    before = logging.root.manager.disable
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere:
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            with redirect_stdout(nowhere), redirect_stderr(nowhere):
                yield
        finally:
            logging.disable(before)


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")
