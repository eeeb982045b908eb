"""A study over files of sites in this process: messages, policies and masks of a deployment, without a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedsaddle.arguments import flag, instance
from fedsaddle.arguments import path as file_path
from fedsaddle.deployment.courier import InProcess, Patience
from fedsaddle.deployment.deployed_sites import Watch
from fedsaddle.deployment.deployed_study import BEGUN, DeployedStudy, StudyResult
from fedsaddle.deployment.project import SITE_NAME
from fedsaddle.deployment.secure_site import read_identity, write_site_keys
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.deployment.site_rows import SiteSettings
from fedsaddle.deployment.study_site import StudySite
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.files import make_folder
from fedsaddle.studies.study_plan import read_plan
from fedsaddle.text import visible

HOMES = "sites"  # in the study's folder: what each site would keep


def study_at_sites(
    plan: str | Path,
    sites: Mapping[str, str | Path],
    *,
    out: str | Path,
    resume: bool = False,
    policy: SitePolicy | None = None,
    watch: Watch = lambda trial, done: None,
) -> StudyResult:
    """Do the study of a study.toml over files of sites that are here, as their deployment would do it.

    What a site would keep, such as its model and its log, is in `out/sites/NAME`.

    Args:
        plan: the path of study.toml, as `fedsaddle deploy init --sample` writes it.
        sites: the file of each site, by name.
        out: folder for the report, the model and all other files.
        resume: go on with a study in `out` that was stopped.
        policy: of all sites; None: the default.
        watch: called with a trial and its rounds so far.

    Raises:
        BadInput: for a plan, names or rows that are invalid.
        MissingData: if a file is missing.
        TooFewAnswered: if a site refuses the study, with its reason.
    """
    found, folder = read_plan(file_path("plan", plan)), file_path("out", out)
    flag("resume", resume)
    if not isinstance(sites, Mapping) or len(sites) < 2:
        raise BadInput("sites", sites if not isinstance(sites, Mapping) else list(sites), "name two sites or more")
    if policy is not None:
        instance("policy", policy, SitePolicy, "must be a SitePolicy")
    files = {}
    for name, given in sites.items():
        if not isinstance(name, str) or not SITE_NAME.fullmatch(name):
            raise BadInput("sites", name, "use lower-case letters, digits and '-'")
        files[name] = file_path(f"sites[{name!r}]", given)
        if not files[name].is_file():
            raise MissingData(f"site {name!r}: there is no file {visible(files[name])}")
    if (folder / BEGUN).exists() != resume:
        remedy = "holds no study to resume" if resume else "holds a study already; resume it, or choose another folder"
        raise BadInput("out", str(folder), remedy)
    make_folder("out", folder)
    homes = {name: folder / HOMES / name for name in files}
    if found.privacy.secure_aggregation:
        write_site_keys(homes, list(homes))
    made = {
        i: StudySite(
            found, SiteSettings(name, path, homes[name]), policy or SitePolicy(), read_identity(homes[name], name)
        )
        for i, (name, path) in enumerate(files.items())
    }
    transport = InProcess({i: site.answer for i, site in made.items()})
    patience = Patience(patience=0.0, minimum=len(files))
    return DeployedStudy(found, "study", tuple(files), folder, patience).go(transport, watch=watch)
