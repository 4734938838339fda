"""The files of a diverged run: the batch where it was noticed, and the last good weights."""

import dataclasses

import numpy as np
import torch
from safetensors.torch import save as safetensors_bytes

from adaptive_labels.lab.experiments.build import Prepared
from adaptive_labels.lab.runs import RunFolder
from adaptive_labels.lab.training.checkpoints import read_checkpoint
from adaptive_labels.lab.training.loop import FitResult
from adaptive_labels.lab.words import listed

BATCH, WEIGHTS = "bad_batch.npz", "last_good.safetensors"
_NETWORK = "objective/model."


def keep_evidence(run: RunFolder, fitted: FitResult, prepared: Prepared) -> FitResult:
    """Write the bad batch and the network of the last checkpoint into a run's folder; the reason says where."""
    reason = str(fitted.reason)
    if fitted.bad_batch is not None:
        reason = _save_batch(run, fitted.bad_batch, prepared) or reason
        reason += f"; the batch is in {BATCH}"
    checkpoint = read_checkpoint(run.path / "checkpoint")
    if checkpoint is not None:
        weights = {name: tensor for name, tensor in checkpoint.tensors.items() if name.startswith(_NETWORK)}
        network = {name.removeprefix(_NETWORK): tensor.contiguous() for name, tensor in weights.items()}
        run.write_bytes(WEIGHTS, safetensors_bytes(network))
        reason += f"; the weights after epoch {checkpoint.epoch} are in {WEIGHTS} (--weights starts from them)"
    return dataclasses.replace(fitted, reason=reason)


def _save_batch(run: RunFolder, indices: torch.Tensor, prepared: Prepared) -> str | None:
    """Write a batch as it was before augmentation; a reason of its own if its inputs are not finite."""
    examples = prepared.dataset.train
    inputs = prepared.train.batch(indices)
    tensors = inputs if isinstance(inputs, tuple) else (inputs,)
    places = indices.tolist()
    sources = [str(i) if examples.sources is None else str(examples.sources[i]) for i in places]
    run.write_npz(
        BATCH,
        indices=indices.numpy(),
        labels=examples.labels[indices].numpy(),
        sources=np.array(sources, dtype=np.str_),
        **{f"inputs_{number}": tensor.numpy() for number, tensor in enumerate(tensors)},
    )
    for tensor in tensors:
        if tensor.is_floating_point() and len(tensor) == len(sources):
            finite = tensor.flatten(1).isfinite().all(1).tolist()
            bad = [source for source, fine in zip(sources, finite, strict=True) if not fine]
            if bad:
                return f"inputs are NaN or infinite ({listed(bad)}): correct or remove these examples"
    return None
