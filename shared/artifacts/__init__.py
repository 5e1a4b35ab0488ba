"""A trained model as one file: its weights, and all that is needed to use them.

    info                ModelInfo: the module's name, its inputs and outputs, the run; as metadata of a file,
                        and the meaning of its outputs: classes with probabilities, or numbers
    safetensors_file    the file that a server writes, for torch
    onnx_file           the forward pass as ONNX, with its weights inside, for any runtime

docs/use-the-model.md describes the files. The files need their libraries.
"""

from edgeflock.shared.artifacts.info import ModelInfo, Predictions, digest_of, interpret
