"""load_model.py: written beside every model, and run in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cli_command import no_pictures, run
from torch import nn

from fedsaddle.studies.model_loader import as_code

CONFIG = """
[data]
name = "digits"
images = true
[split]
name = "iid"
clients = 3
[model]
name = "mlp"
hidden = [6, 5]
[algorithm]
name = "FedAvg"
local_steps = 1
[run]
rounds = 1
"""
SCORES = (
    "import json, sys, torch; sys.path.insert(0, sys.argv[1]); from load_model import model; "
    "x = torch.linspace(0, 1, 128, dtype=next(model.parameters()).dtype).view(2, 1, 8, 8); "
    "print(json.dumps([model(x).tolist(), any(m.startswith('fedsaddle') for m in sys.modules)]))"
)


TREES = ('model={name="forest",trees=4,depth=2}', 'algorithm={name="BoostedTrees",parallel=4}')


@pytest.mark.parametrize(
    ("changes", "needs_us"),
    [((), False), (("run.dtype=float64",), False), (('model={name="cnn"}',), True), (TREES, False)],
    ids=["mlp", "float64", "cnn", "trees"],
)
def test_the_written_lines_give_the_trained_model(changes, needs_us, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(CONFIG)
    with no_pictures():
        outcome = run(config, *changes, out=tmp_path / "out")
    assert outcome.code == 0, outcome.err
    said = subprocess.run(
        [sys.executable, "-c", SCORES, str(tmp_path / "out")], capture_output=True, text=True, check=True
    )
    scores, ours = json.loads(said.stdout)
    assert ours is needs_us
    torch.testing.assert_close(torch.tensor(scores), torch.tensor(_expected(tmp_path / "out")), rtol=0, atol=1e-5)


def _expected(out: Path) -> list[list[float]]:
    """The scores of the model as the library builds and loads it."""
    from safetensors.torch import load_file

    from fedsaddle.config.build import build
    from fedsaddle.config.schema import validate_config

    built = build(validate_config(json.loads((out / "config.json").read_text())))
    module = built.algorithm.problem.model
    module.load_state_dict(load_file(out / "model.safetensors"))
    kind = next(module.parameters()).dtype
    with torch.no_grad():
        return module(torch.linspace(0, 1, 128, dtype=kind).view(2, 1, 8, 8)).tolist()


def test_layers_in_a_row_are_written_as_code():
    made = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False)))
    code = "nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False)))"
    assert as_code(made) == code
    for other in (nn.Conv2d(1, 4, 3), nn.Flatten(0), nn.TransformerEncoderLayer(4, 2)):
        assert as_code(nn.Sequential(nn.ReLU(), other)) is None
