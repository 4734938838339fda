"""What a command sets for its process: seen in how often the system is asked for pages."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

STEPS = """
import resource
from adaptive_labels.lab.cli.app import prepare_process
prepare_process()
import torch

torch.manual_seed(0)
bag, head = torch.nn.EmbeddingBag(131_072, 32), torch.nn.Linear(32, 30)  # 16 MB of gradient
optimizer = torch.optim.AdamW([*bag.parameters(), *head.parameters()], fused=True)

def step():
    tokens = int(torch.randint(5_000, 15_000, ()))
    bags = torch.arange(0, tokens, tokens // 400)
    head(bag(torch.randint(131_072, (tokens,)), bags)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

# The heap may still grow by a block while threads take turns, so a settled stretch counts: the least of three.
faults = []
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(12):
        step()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults[1:]))
"""


def page_faults(**environment: str) -> int:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", STEPS]
    return int(subprocess.run(command, env=clean | environment, check=True, capture_output=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_freed_memory_is_used_again_unless_the_user_wishes_otherwise() -> None:
    gradients = 12 * 16 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert page_faults() < 0.05 * gradients
    assert page_faults(MALLOC_TRIM_THRESHOLD_="1000000") > 0.5 * gradients
