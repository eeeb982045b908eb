"""`fedsaddle init`: write a config, or with `--extension` a package of one's own."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedsaddle import __version__
from fedsaddle.commands.options import (
    YOUR_TABLE,
    AlgorithmOption,
    CategoricalOption,
    DropOption,
    GroupsOption,
    ImageOption,
    LabelOption,
    NumericOption,
    PatientOption,
    PositiveOption,
    SiteOption,
    in_options,
    refuse_options,
    table_of,
    usable,
)
from fedsaddle.commands.output import JsonOption, output
from fedsaddle.errors import BadInput
from fedsaddle.files import make_folder, require_folder, require_path, write_atomically
from fedsaddle.own_code import OURS, is_module
from fedsaddle.text import visible

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


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The config to write.", callback=usable)] = Path(
        "fedsaddle.toml"
    ),
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Your table.", show_default=False, callback=usable, rich_help_panel=YOUR_TABLE
        ),
    ] = None,
    site: SiteOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    patient: PatientOption = None,
    image: ImageOption = None,
    numeric: NumericOption = None,
    categorical: CategoricalOption = None,
    drop: DropOption = None,
    groups: GroupsOption = None,
    algorithm: AlgorithmOption = None,
    extension: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Write a package for your own code instead, with this name.",
            show_default=False,
            rich_help_panel="Your own code",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of that package; by default its name.",
            show_default=False,
            callback=usable,
            rich_help_panel="Your own code",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an example config with comments, or with --extension a package for your own code."""
    if extension is not None:
        write_extension(extension, out)
        return
    refuse_options({"out": out}, "--extension")
    table = table_of(
        csv,
        site,
        label,
        positive=positive,
        patient=patient,
        image=image,
        numeric=numeric,
        categorical=categorical,
        drop=drop,
        groups=groups,
        algorithm=algorithm,
    )
    require_path("path", path)
    if os.path.lexists(path):
        raise BadInput("path", str(path), "already exists; choose another name")
    if not path.parent.is_dir():
        raise BadInput("path", str(path), "its folder does not exist; create it first")
    require_folder("path", path.parent)
    write_atomically(path, (EXAMPLE if table is None else in_options()(table.to_toml)()).encode())
    output.line(f"written to {visible(path)}; run it with: fedsaddle run {visible(path)}")
    output.emit_lines("init", path)


TEMPLATE = Path(__file__).with_name("extension_template")
FILES = {  # of the template -> of the package
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "example.toml.txt": "example.toml",
    "init.py.txt": "src/@PACKAGE@/__init__.py",
    "proximal.py.txt": "src/@PACKAGE@/proximal.py",
    "networks.py.txt": "src/@PACKAGE@/networks.py",
    "test_proximal.py.txt": "tests/test_proximal.py",
}
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


def write_extension(name: str, out: Path | None = None) -> None:
    """Write the package `name` to a new folder: `out`, by default one of that name."""
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > 60 or not is_module(package):
        raise BadInput("--extension", name, "use lower-case letters, digits and '-', such as my-package")
    if package in sys.stdlib_module_names or package == OURS:
        raise BadInput("--extension", name, "is the name of another module; choose your own")
    folder = Path(name) if out is None else out
    require_path("--out", folder)
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput("--out", str(folder), "already exists; choose another folder")
    require_folder("--out", folder)
    for source, target in FILES.items():
        path = folder / target.replace("@PACKAGE@", package)
        make_folder("--out", path.parent)
        text = (TEMPLATE / source).read_text(encoding="utf-8")
        for mark, value in {"@NAME@": name, "@PACKAGE@": package, "@VERSION@": __version__}.items():
            text = text.replace(mark, value)
        write_atomically(path, text.encode())
    where = visible(folder)
    output.line(f"written to {where}; install it with: pip install -e '{where}[test]', then: cd {where} && pytest")
    output.emit_lines("init", folder)
