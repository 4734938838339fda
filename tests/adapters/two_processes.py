"""One of two processes: train with every trainer that is installed, and save the states."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))
warnings.simplefilter("ignore")

from adapters import test_module, test_timm  # noqa: E402
from adapters.parts import CRITERIA  # noqa: E402
from process_end import leave  # noqa: E402

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
trainers: dict[str, Callable[[str, Path], dict[str, Tensor]]] = {
    "module": test_module.train_in_two_processes,
    "timm": test_timm.train_in_two_processes,
}
if importlib.util.find_spec("accelerate"):
    from adapters import test_accelerate

    trainers["accelerate"] = test_accelerate.train_in_two_processes
if importlib.util.find_spec("transformers"):
    from adapters import test_transformers

    trainers["transformers"] = test_transformers.train_in_two_processes
if importlib.util.find_spec("lightning"):
    from adapters import test_lightning

    trainers["lightning"] = test_lightning.train_in_two_processes
for trainer, train in trainers.items():
    for name in CRITERIA:
        if trainer != "timm" or name not in test_timm.REFUSED:
            torch.save(train(name, folder), folder / f"{trainer}-{name}.{dist.get_rank()}")
leave()
