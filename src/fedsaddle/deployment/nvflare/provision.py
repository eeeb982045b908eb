"""Start-up kits from NVFlare's provisioning: mutual TLS, a list of allowed classes, no custom code, no log streaming.

A kit contains the private key of one participant; give it to that participant only. All that is made here is for its
owner alone, from the moment it is made.
"""

from __future__ import annotations

import json
import shutil
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from fedsaddle.deployment.nvflare.own_keys import apply_requests, signing_keys
from fedsaddle.deployment.project import (
    KIT_CONFIG,
    KIT_SETTINGS,
    Project,
    only_for_owner,
    take_from_others,
    write_site_kit,
)
from fedsaddle.deployment.secure_site import write_site_keys
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.files import write_json
from fedsaddle.studies.study_plan import base_config

KITS, WORK = "kits", "provision"
ALLOWED = ["fedsaddle.deployment.nvflare.app.ServerApp", "fedsaddle.deployment.nvflare.app.SiteApp"]
RIGHTS = {
    "format_version": "1.0",
    "permissions": {
        "project_admin": "none",
        "org_admin": {"view": "any"},
        "lead": {
            "submit_job": "any",
            "clone_job": "none",
            "manage_job": "n:submitter",
            "download_job": "n:submitter",
            "view": "any",
            "operate": "none",
            "shell_commands": "none",
            "app_command": "n:submitter",
            "byoc": "none",
        },
    },
}


def provision(project: Project, folder: Path) -> list[Path]:
    """Make the missing kits and update the settings in all kits; return the new kits."""
    config = folder / project.deployment.config
    if not config.is_file():
        raise MissingData(
            f"deployment.config = {project.deployment.config!r}: {config} does not exist; write the config first"
        )
    kits = folder / KITS
    _check_address(project, kits)
    with only_for_owner():
        made = _provisioned(project, folder)
        kits.mkdir(exist_ok=True)
        new = []
        for name in _everybody(project):
            kit = kits / name
            if not kit.exists():
                shutil.copytree(made / name, kit)
                new.append(kit)
        for kit in kits.iterdir():
            if (kit / "local").is_dir():
                _configure(project, kit, config)
        apply_requests(folder, kits)
        update_site_keys(project, folder)
    take_from_others(kits)
    return new


def renew(project: Project, folder: Path) -> list[Path]:
    """Make a new root and new certificates; put them into the kits, which keep their settings and runs.

    The old root and the old start-up folders are kept beside the new ones, with the time in their names.
    """
    kits, stamp = folder / KITS, datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    present = [kits / name for name in _everybody(project) if (kits / name / "startup").is_dir()]
    if not present:
        raise MissingData(f"{kits}: no kits to renew there; `fedsaddle deploy provision` makes them")
    _check_address(project, kits)
    with only_for_owner():
        if (folder / WORK).exists():
            (folder / WORK).rename(folder / f"{WORK}-until-{stamp}")
        made = _provisioned(project, folder)
        for kit in present:
            (kit / "startup").rename(kit / f"startup-until-{stamp}")
            shutil.copytree(made / kit.name / "startup", kit / "startup")
        apply_requests(folder, kits)
    take_from_others(kits)
    return present


def update_server(project: Project, folder: Path) -> None:
    """Write the settings of the server, such as the names of the sites, into its kit, if that is here."""
    kit = folder / KITS / project.deployment.server
    if (kit / "local").is_dir():
        _configure(project, kit, folder / project.deployment.config)
    update_site_keys(project, folder)


def update_site_keys(project: Project, folder: Path) -> None:
    """Write the public keys for secure aggregation into all kits, where the config asks for it; make missing ones."""
    if base_config(folder / project.deployment.config).privacy.secure_aggregation:
        kits = {name: folder / KITS / name for name in project.names}
        if all(kit.is_dir() for kit in kits.values()):
            write_site_keys(kits, project.names, signing_keys(folder))


def _everybody(project: Project) -> tuple[str, ...]:
    """The server, the sites and the user who submits runs."""
    return (project.deployment.server, *project.names, project.admin)


def _provisioned(project: Project, folder: Path) -> Path:
    """Run the provisioning inside a folder that is for its owner alone, and see that all in it is."""
    (folder / WORK).mkdir(parents=True, exist_ok=True)
    take_from_others(folder / WORK)  # what an earlier version left open
    made = _run_provisioning(project, folder)
    take_from_others(folder / WORK)
    return made


def _check_address(project: Project, kits: Path) -> None:
    """Raise `BadInput` if the server's address differs from that in the kits and certificates."""
    d = project.deployment
    for path in kits.glob("*/startup/fed_server.json"):
        was = json.loads(path.read_text())["servers"][0]
        target, admin_port = was["service"]["target"], was["admin_port"]
        settings = {"name": (d.name, was["name"]), "admin_port": (d.admin_port, admin_port)}
        settings["server and port"] = (f"{d.server}:{d.port}", target)
        for key, (now, then) in settings.items():
            if now != then:
                remedy = f"the kits were made for {then!r}; use that, or remove {kits} and {kits.parent / WORK} first"
                raise BadInput(f"deployment.{key}", now, remedy)


def _run_provisioning(project: Project, folder: Path) -> Path:
    """Run NVFlare's provisioning; return the folder of its newest kits."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    settings = nvflare_project(project)
    with redirect_stdout(StringIO()) as output:
        provisioner = Provisioner(str(folder / WORK), prepare_builders(settings))
        context = provisioner.provision(prepare_project(settings))
    if context.get(CtxKey.BUILD_ERROR):
        raise BadInput("provision", output.getvalue().strip().splitlines()[-1:], "NVFlare could not make the kits")
    return Path(context[CtxKey.CURRENT_PROD_DIR])


def nvflare_project(project: Project) -> dict[str, Any]:
    """The project in NVFlare's format."""
    d, lighter = project.deployment, "nvflare.lighter.impl"
    org = {"org": "fedsaddle"}
    server = {"name": d.server, "type": "server", "fed_learn_port": d.port, "admin_port": d.admin_port,
              "default_host": d.server, "host_names": [d.server], **org}  # fmt: skip
    sites = [{"name": name, "type": "client", "allow_log_streaming": False, **org} for name in project.names]
    admin = {"name": project.admin, "type": "admin", "role": "lead", **org}
    return {
        "api_version": 3,
        "name": d.name,
        "description": "made by fedsaddle deploy provision",
        "participants": [server, *sites, admin],
        "builders": [
            {"path": f"{lighter}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {"path": f"{lighter}.static_file.StaticFileBuilder", "args": {"config_folder": "config", "scheme": "grpc"}},
            {"path": f"{lighter}.cert.CertBuilder", "args": {"root_valid_days": d.certificate_days}},
            {"path": f"{lighter}.signature.SignatureBuilder"},
        ],
    }


def _configure(project: Project, kit: Path, config: Path) -> None:
    """Write the rights, the data paths or server settings, and the config of the run into a kit."""
    local, d = kit / "local", project.deployment
    default = local / "resources.json.default"
    if kit.name not in (
        d.server,
        *project.sites,
    ):  # the user who submits runs, or a site that is no longer in the project
        return
    write_json(local / "authorization.json", RIGHTS)
    resources = json.loads(default.read_text())
    resources |= {"class_allow_list": ALLOWED, "class_list_enforcement_mode": "enforce"}
    unwanted = {"site_log_streamer", "log_receiver"}
    resources["components"] = [c for c in resources["components"] if c["id"] not in unwanted]
    if kit.name == d.server:
        write_json(kit / KIT_SETTINGS, _server_settings(project))
        shutil.copyfile(config, kit / KIT_CONFIG)
    else:
        resources["allow_log_streaming"] = False
        write_site_kit(project, kit.name, config.parent, kit)
    write_json(local / "resources.json", resources)
    set_job_store(kit)


def _server_settings(project: Project) -> dict[str, Any]:
    """The sites, and how long the server waits for them."""
    d = project.deployment
    waits = {"timeout": d.timeout, "minimum": d.minimum, "patience": d.patience, "most_bytes": d.most_bytes}
    return {"sites": list(project.names), "grace": d.grace, "patience": waits}


def set_job_store(kit: Path) -> None:
    """Make a server store its jobs in its kit instead of the machine's temporary folder."""
    path = kit / "local" / "resources.json"
    resources = json.loads(path.read_text())
    if "snapshot_persistor" in resources:
        store = kit.resolve() / "store"
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(store / "snapshots")
        for component in resources["components"]:
            if component["id"] == "job_manager":
                component["args"]["uri_root"] = str(store / "jobs")
        write_json(path, resources)


def site_of(kit: Path) -> str | None:
    """The name of the site that a kit belongs to; None for the server's kit."""
    path = kit / "startup" / "fed_client.json"
    return str(json.loads(path.read_text())["client"]["fqsn"]) if path.is_file() else None
