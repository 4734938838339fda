"""Encoders: what a network reads, made from texts or images, as whole batches of tensors."""

import importlib
import pkgutil

from adaptive_labels.data.encoders.registry import (
    ENCODERS as ENCODERS,
    EncodedExamples as EncodedExamples,
    Encoder as Encoder,
    encode as encode,
    encoder_from_dict as encoder_from_dict,
    encoder_options as encoder_options,
    encoder_to_dict as encoder_to_dict,
    fit_encoder as fit_encoder,
    register_encoder as register_encoder,
)
from adaptive_labels.data.encoders.text import length_notes as length_notes

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
