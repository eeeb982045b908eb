"""`fedsaddle deploy try`: run a whole deployment on one machine and compare it with the simulation."""

from __future__ import annotations

import socket
import tempfile
import time
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsaddle.commands.documents import SCHEMA, TryDocument
from fedsaddle.commands.options import OUTPUT, usable
from fedsaddle.commands.output import JsonOption, QuietOption, output
from fedsaddle.errors import BadInput
from fedsaddle.files import require_folder, write_atomically

if TYPE_CHECKING:
    from fedsaddle.data.federated import FederatedData


def write_site_files(data: FederatedData, folder: Path) -> list[Path]:
    """Write the encoded rows of each client to a .npz file."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(data.count):
        x, y = data.train.client(i)
        arrays = {"x": x.numpy(), "y": y.numpy()}
        for part, rows in (("test", data.test), ("validation", data.validation)):
            if rows is not None:
                x, y = rows.client(i)
                arrays |= {f"x_{part}": x.numpy(), f"y_{part}": y.numpy()}
        paths.append(folder / f"site-{i + 1}.npz")
        np.savez(paths[-1], **arrays)  # type: ignore[arg-type]
    return paths


OPEN_POLICY = 'minimum_cell = 1\nminimum_rows = 1\nminimum_sites = 1\ndraws = "seed"\n'
CONFIG = """\
[data]
name = "digits"
[split]
name = "dirichlet"
clients = {sites}
alpha = 0.5
[model]
name = "logistic"
[algorithm]
name = "DRFA"
local_steps = 10
batch_size = 50
primal_step = 0.1
dual_step = 0.001
[run]
rounds = 10
evaluate_every = 5
"""


def deploy_try(
    sites: Annotated[int, typer.Option(metavar="NUMBER", help="Number of sites.")] = 4,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A config; by default DRFA on digits.", show_default=False, callback=usable),
    ] = None,
    secure: Annotated[bool, typer.Option("--secure", metavar="", help="Use secure aggregation.")] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Privacy budget of each row; the sites add the noise."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the results.", callback=usable, rich_help_panel=OUTPUT)
    ] = Path("fedsaddle-try"),
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a whole deployment on this machine, with processes and TLS, and compare it with the simulation."""
    try:
        raise typer.Exit(try_deployment(sites, config, out, secure, epsilon))
    except KeyboardInterrupt:
        raise typer.Exit(output.interrupted("interrupted; all processes stopped")) from None


def try_deployment(
    sites: int, config: Path | None, out: Path, secure: bool = False, epsilon: float | None = None
) -> int:
    """Split the data, provision, start, run and stop; the exit code is 0 if the models agree to 1e-12, else 1.

    With `secure` both runs have secure aggregation, and what the server saw is printed. With privacy the sites' noise
    is their secret: the models differ, and the exit code is 0 if the budget was kept.
    """
    from safetensors.torch import load_file

    from fedsaddle.commands.run_deployed import run_deployed
    from fedsaddle.config.build import build
    from fedsaddle.config.schema import read_config
    from fedsaddle.config.toml_files import toml_string
    from fedsaddle.deployment.agreement import require_secure
    from fedsaddle.deployment.ledger import budget_lines, site_budgets
    from fedsaddle.deployment.project import EXAMPLE, FILE, RUNS, read_project, require_deployable, require_nvflare
    from fedsaddle.deployment.site_policy import FILE as POLICY
    from fedsaddle.deployment.site_policy import module_digests
    from fedsaddle.privacy.settings import Privacy
    from fedsaddle.processes import terminate_as_interrupt
    from fedsaddle.report.tables import one_run
    from fedsaddle.runs.folder import RunFolder
    from fedsaddle.runs.run import run

    require_nvflare()
    if sites < 2:
        raise BadInput("--sites", sites, "a federation needs at least two sites")
    require_folder("--out", out)
    if out.exists() and any(out.iterdir()):
        raise BadInput("--out", str(out), "is not empty; choose another folder")
    from fedsaddle.deployment.nvflare import processes
    from fedsaddle.deployment.nvflare.provision import KITS, provision

    if config is not None:
        read_config(config)
    clock, screen = time.monotonic(), output.screen()

    def say(text: str) -> None:
        if output.quiet:
            return
        screen.print(f"{time.monotonic() - clock:5.1f} s  {text}", highlight=False, markup=False, soft_wrap=True)

    with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="fedsaddle-") as name, ExitStack() as stack:
        folder = Path(name)
        write_atomically(folder / "fedsaddle.toml", _config_text(sites, config, secure, epsilon))
        settings = read_config(folder / "fedsaddle.toml")
        require_deployable(settings)
        if settings.data.name in ("file", "pictures"):
            remedy = (
                "a trial deals out a named data set, such as digits; for files of your own use `fedsaddle deploy init`"
            )
            raise BadInput("data.name", settings.data.name, remedy)
        built = build(settings)
        if built.data.count != sites:
            raise BadInput(
                "--sites", sites, f"the split of the config makes {built.data.count} clients; use that number"
            )
        if settings.privacy.secure_aggregation:
            require_secure(built.data.names, built.algorithm)
        files = write_site_files(built.data, folder / "data")
        listed = "".join(f"[sites.{file.stem}]\ndata = {toml_string(file.as_posix())}\n" for file in files)
        port, admin_port = free_ports(2)
        project_text = EXAMPLE.format(
            name="trial", server=toml_string("localhost"), port=port, admin_port=admin_port, minimum=sites, sites=listed
        )
        write_atomically(folder / FILE, project_text.encode())
        project = read_project(folder)
        say(f"{settings.data.name} split into {sites} files, one per site")
        kits = {kit.name: kit for kit in provision(project, folder)}
        code = "".join(f'"{module}" = "{digest}"\n' for module, digest in module_digests(settings).items())
        for name in project.names:  # rows that everybody has, and perhaps few at a site
            write_atomically(kits[name] / POLICY, f"{OPEN_POLICY}[modules]\n{code}".encode(), 0o600)
        write_atomically(kits[project.deployment.server] / POLICY, f"[modules]\n{code}".encode(), 0o600)
        say("start-up kits with certificates written")
        for participant in ("localhost", *project.names):
            kit = folder / KITS / participant
            # one thread each: they share this machine, and products round by the number of threads
            stack.callback(processes.start(kit, kit / "process.log", threads=1).wait)
            stack.callback(processes.stop, kit)
        say(f"a server and {sites} sites started on port {port}, {len(kits)} kits")
        run_deployed(settings, folder / "fedsaddle.toml", out, resume=False)
        say("the run is done")
        stack.close()
        say("all processes stopped")
        logs = {name: keep_logs(kits[name] / RUNS, out / "sites" / name) for name in project.names}
        ledgers = {name: site_budgets(log, None) for name, log in logs.items()}
    s = settings.run
    simulated = run(
        built.algorithm,
        built.data,
        s.rounds,
        seed=s.seed,
        engine="serial",
        evaluate_every=s.evaluate_every,
        privacy=Privacy(secure_aggregation=True) if settings.privacy.secure_aggregation else None,
    )
    alone = simulated.document.model_copy(update={"algorithm": f"{settings.algorithm.name}, simulated"})
    screen.print(one_run(alone))
    done = RunFolder(out)
    deployed, summary = load_file(done.model), done.read_run()
    difference = max(float((v - deployed[k]).abs().max()) for k, v in simulated.state_dict().items())
    screen.print(f"largest difference of the models: {difference:.1e}", highlight=False)
    if seen := summary.secure_aggregation:
        for how, names in (("sums over sites only", seen.sums), ("of each site", seen.single)):
            screen.print(f"the server saw {how}: {', '.join(names) or 'nothing'}", highlight=False, soft_wrap=True)
    budget = summary.privacy
    spent = None if settings.privacy.epsilon is None or budget is None else budget.epsilon_spent
    if spent is not None:
        screen.print("the sites' noise is their secret, and differs from the simulation's", highlight=False)
        for site, own in ledgers.items():
            for line in budget_lines(own):
                screen.print(f"{site}'s ledger: {line}", highlight=False, markup=False, soft_wrap=True)
    first = logs[next(iter(logs))]
    screen.print(f"what left the first site: fedsaddle deploy audit {first}", highlight=False, soft_wrap=True)
    kept = all(own["epsilon_spent"] <= own["epsilon"] for owns in ledgers.values() for own in owns)
    agree = difference <= 1e-12 or (spent is not None and budget is not None and kept and spent <= budget.epsilon)
    document: TryDocument = {
        "schema": SCHEMA,
        "command": "deploy try",
        "folder": str(out),
        "deployed": summary.to_dict(),
        "simulated": alone.to_dict(),
        "difference": difference,
        "agree": agree,
    }
    output.emit(document)
    return 0 if agree else 1


def keep_logs(runs: Path, to: Path) -> Path:
    """Copy a site's log of what left, and its ledgers, but neither rows nor secrets, to where `deploy audit` reads."""
    from fedsaddle.deployment.audit import AUDIT_FILE
    from fedsaddle.deployment.ledger import LEDGER

    for path in (*runs.glob(AUDIT_FILE), *runs.glob(f"*/{LEDGER}")):
        (to / path.relative_to(runs)).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(to / path.relative_to(runs), path.read_bytes(), 0o600)
    return to


def _config_text(sites: int, config: Path | None, secure: bool, epsilon: float | None) -> bytes:
    """The config of the trial, with what the options ask for in its [privacy]."""
    content = CONFIG.format(sites=sites).encode() if config is None else config.read_bytes()
    from fedsaddle.config.schema import read_config

    asked = secure and not (config is not None and read_config(config).privacy.secure_aggregation)
    if not asked and epsilon is None:
        return content
    if "privacy" in tomllib.loads(content.decode()):
        key, value = ("--secure", secure) if asked else ("--epsilon", epsilon)
        raise BadInput(key, value, "the config has a section [privacy] already; write it there")
    lines = ["secure_aggregation = true"] * asked + ([] if epsilon is None else [f"epsilon = {epsilon!r}"])
    return content + "\n".join(["", "[privacy]", *lines, ""]).encode()


def free_ports(count: int) -> list[int]:
    """Ports that are not in use."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
