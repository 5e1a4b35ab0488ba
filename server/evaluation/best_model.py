"""The model with the best evaluation so far, as a file in the run's directory."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.artifacts import ModelInfo, safetensors_file
from edgeflock.shared.files import write_atomically
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import ExtraState, Layout
from edgeflock.shared.model.lora import Adapted, whole_model
from edgeflock.shared.protocol.frames import Evaluation, PrivacySpent
from edgeflock.shared.settings.model import ModelSettings

log = logging.getLogger(__name__)

BEST = "best.safetensors"
"""The file's name in server.directory."""


def info_of(
    settings: ModelSettings,
    run: str,
    layout: Layout,
    shape: tuple[int, ...] | None,
    data: Description | None,
    adapted: Adapted | None = None,
) -> ModelInfo:
    """The description of a run's models, as yet of no version. `shape` is that of a sample's x."""
    return ModelInfo(
        model=settings.module,
        layout=layout if adapted is None else adapted.layout,
        run=run,
        version=0,
        loss=settings.loss,
        input=shape,
        data=data,
        lora=None if adapted is None else adapted.summary(),
    )


def save_best(
    directory: Path,
    info: ModelInfo,
    extra: ExtraState,
    adapted: Adapted | None,
    theta: NDArray[np.float32],
    evaluation: Evaluation,
    spent: PrivacySpent | None = None,
) -> None:
    """Write the model to best.safetensors atomically. A write error is logged and stops no run.

    `info` describes the run's models; `evaluation` is that of theta, float32 [P + B]. Of an `adapted` model,
    theta has the adapters, and the file all. `spent` is what its privacy has cost.
    """
    known = replace(
        info,
        version=evaluation.version,
        evaluation=summary(evaluation),
        privacy=None if spent is None else spent._asdict(),
    )
    try:
        write_atomically(
            directory / BEST, safetensors_file.encode(known, *whole_model(adapted, theta, extra))
        )
    except OSError as error:
        log.warning("the best model so far, of version %d, is not kept: %s", evaluation.version, error)


def summary(evaluation: Evaluation) -> dict[str, Any]:
    """The part of an evaluation that a model's file carries."""
    return {
        "version": evaluation.version,
        "loss": evaluation.loss,
        "accuracy": evaluation.accuracy,
        "metrics": dict(evaluation.metrics),
    }
