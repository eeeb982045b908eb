"""A sweep over two steps and two seeds: its document, its table and each of its runs.

`golden_folder` says how to record anew.
"""

from __future__ import annotations

from cli_command import fedsaddle
from golden_folder import check, document, files, folder, table
from test_golden_simulation import CONFIG


def test_two_steps_and_two_seeds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drfa.toml").write_text(CONFIG)
    axes = ("--set", "algorithm.primal_step=0.03,0.3", "--set", "run.rounds=3", "--seeds", "2")
    outcome = fedsaddle("sweep", "drfa.toml", *axes, "--workers", "1", "--out", "out")
    assert outcome.code == 0, outcome.err
    out = tmp_path / "out"
    check(
        "sweep",
        {
            "files": files(out),
            "sweep": document(out / "sweep.json"),
            "table": table(out / "sweep.csv"),
            "runs": {run.name: folder(run) for run in sorted((out / "runs").iterdir())},
        },
    )
