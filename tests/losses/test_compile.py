"""torch.compile(fullgraph=True): no graph break, same values, gradients and state."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch

from adaptive_labels.losses import METHODS, create_loss

K = 5
CASES = [(name, {}) for name in METHODS if name != "disturb-label"] + [
    ("alr", {"update": "optimizer"}),
]


def compare(name: str, options: dict, backend: str) -> None:
    torch._dynamo.reset()
    ignored = -1  # class probabilities allow none from 0 on
    eager = create_loss(name, K, weight=torch.rand(K), ignore_index=ignored, **options)
    if hasattr(eager, "residual_logits"):
        torch.nn.init.normal_(eager.residual_logits)
    compiled = copy.deepcopy(eager)
    run = torch.compile(compiled, fullgraph=True, backend=backend)
    for mixed in (False, True):
        for _ in range(3):
            z = torch.randn(6, K)
            y = torch.rand(6, K).softmax(1) if mixed else torch.randint(ignored, K, (6,))
            teacher_logits = torch.randn(6, K) if eager.needs_teacher_logits else None
            results = []
            for criterion in (eager, run):
                inputs = z.clone().requires_grad_()
                loss = criterion(inputs, y, teacher_logits=teacher_logits)
                loss.backward()
                results.append((loss.detach(), inputs.grad))
            torch.testing.assert_close(results[0], results[1])
        for key, value in eager.state_dict().items():
            torch.testing.assert_close(compiled.state_dict()[key], value, msg=key)
        assert compiled.parts.keys() == eager.parts.keys()
        with torch.no_grad():
            torch.testing.assert_close(run(z, y), eager(z, y))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_no_graph_break(name: str, options: dict) -> None:
    compare(name, options, backend="eager")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("alr-s", {}), ("alr", {"update": "self"})])
@pytest.mark.filterwarnings("ignore")
def test_with_a_real_compiler(name: str, options: dict) -> None:
    if shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("torch.compile's default backend needs a C++ compiler")
    compare(name, options, backend="inductor")
