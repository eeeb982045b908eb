"""`fedsaddle init`: write a config."""

from __future__ import annotations

import os
from pathlib import Path

from fedsaddle.atomic import write_atomically
from fedsaddle.commands.output import output
from fedsaddle.commands.table_config import TableConfig
from fedsaddle.errors import BadInput
from fedsaddle.shown import visible
from fedsaddle.writable import require_folder, require_path

EXAMPLE = """\
# fedsaddle run THIS-FILE        (fedsaddle list shows all names)

[data]
name = "digits"                  # or "file": path = "mine.csv", target = "label", client = "hospital"
test_share = 0.2                 # held out at each client, if the data have no test set

[split]
name = "by-class"                # how to partition the rows; "natural" with column = "hospital" for your own sites
clients = 10

[model]
name = "logistic"                # or "mlp" with hidden = [50, 50]; "cnn" for pictures, "gru" for text

[problem]
loss = "cross-entropy"           # or "logistic" for two classes, "square" for numbers
l2 = 0.0

[algorithm]
name = "DRFA"                    # or "DRFA-GA", or those named below
sampled_clients = 10             # m, clients per round: of fewer than all, lambda draws them
local_steps = 10                 # tau; without this line: "AFL"
batch_size = 50
primal_step = 0.1                # eta
dual_step = 0.001                # gamma; without this line: "FedAvg", "q-FedAvg", "SCAFFOLD"
# regulariser = { name = "kl", strength = 0.1 }     with this line: "DRFA-Prox"
# projection = { name = "ball", radius = 10.0 }     the paper's W

[run]
rounds = 100
seed = 0
evaluate_every = 1
checkpoint_every = 10
# target = "worst accuracy >= 0.5"                   stop early

[engine]
name = "vectorised"              # or "processes", "ray" (many machines), "serial" (slow), "nvflare" (real sites)
"""


def init(path: Path, table: TableConfig | None = None) -> None:
    """Write the example config, or one for your own table; never overwrite a file."""
    require_path("path", path)
    if os.path.lexists(path):
        raise BadInput("path", str(path), "already exists; choose another name")
    if not path.parent.is_dir():
        raise BadInput("path", str(path), "its folder does not exist; create it first")
    require_folder("path", path.parent)
    write_atomically(path, (EXAMPLE if table is None else table.to_toml()).encode())
    output.line(f"written to {visible(path)}; run it with: fedsaddle run {visible(path)}")
    output.emit_lines("init", path)
