"""site-policy.toml: what a site allows, whatever the server asks for. It lies in the site's own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedsaddle.config.arguments import to_bad_input
from fedsaddle.config.registry import ALGORITHMS, GROUPS, PROBLEMS, entry
from fedsaddle.config.schema import Config, PrivacySection
from fedsaddle.config.toml_files import read_toml
from fedsaddle.errors import BadInput, Refused
from fedsaddle.files import write_atomically
from fedsaddle.own_code import (
    OURS,
    CodeName,
    digest_of,
    find_plugin,
    is_code,
    is_module,
    only_modules,
    parse,
    require_permitted,
)
from fedsaddle.text import visible

_SECTIONS = {"data": "datasets", "split": "splits", "model": "models", "problem": "problems", "algorithm": "algorithms"}
_PARTS = ("losses", "pair_losses", "risks", "regularisers", "projections", "schedules", "estimators")


def named_code(config: Config) -> list[CodeName]:
    """Every module and name that a run of this config would import, beside the library's own."""
    found = [code for key, groups, name in _names(config) if (code := code_behind(groups, key, name)) is not None]
    return list(dict.fromkeys(found))


def module_digests(config: Config) -> dict[str, str]:
    """Module -> digest, of all code that a config names."""
    return {code.module: digest_of(code.module) for code in named_code(config)}


def code_behind(groups: tuple[str, ...], key: str, name: str) -> CodeName | None:
    """What a name stands for outside of the library; None: a name of ours, or of nobody."""
    if is_code(name):
        return parse(key, name)
    if any(name in GROUPS[group] for group in groups):
        return None
    brings = (find_plugin(group, key, name) for group in groups)
    return next((parse(key, found.target) for found in brings if found is not None), None)


def _names(config: Config) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Key, groups and name, wherever a config can name something."""
    for section, group in _SECTIONS.items():
        given = getattr(config, section)
        yield f"{section}.name", (group,), given.name
        if section in ("problem", "algorithm", "model"):
            yield from _inside(section, given.options())
    for measure in config.run.measures:
        name = measure.get("name") if isinstance(measure, dict) else measure
        if isinstance(name, str):
            yield "run.measures", ("measures",), name


def _inside(key: str, options: Mapping[str, object]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Names in tables of options, however deep, and of losses and risks, which need no table."""
    for option, value in options.items():
        if isinstance(value, dict):
            yield from _inside(f"{key}.{option}", value)
        elif isinstance(value, str) and (option in ("name", "loss", "risk") or option.endswith("_loss")):
            yield f"{key}.{option}", _PARTS, value


FILE = "site-policy.toml"
EXAMPLE = """\
# What this site allows, whatever the server asks for. Nobody but you writes to this file; it is read when the site
# starts. A run that breaks a rule is refused with a line that names the rule. Remove the '#' to change a rule.

# minimum_cell = 5               # counts that leave are 0 or at least this; rarer values are told as "other"
# minimum_rows = 20              # of training rows; test and validation rows are not measured if there are fewer
# minimum_sites = 3              # that an average is of
# secure_aggregation = true      # the server sees averaged fields of replies as sums over sites only; by default as the
                                 # config says

# columns = ["age", "sex"]       # the only columns that may be read, besides the label; by default those of the config,
                                 # without those that look like identifiers
# algorithms = ["FedAvg"]        # by default that of the config
# problems = ["supervised"]

# most_rounds = 100              # of a run; by default as many as the config of this site says
# most_evaluations = 100         # models measured in a run; by default what the config needs and a quarter more
# most_runs = 20                 # that may begin within 31 days
# draws = "secret"               # minibatches are drawn by a secret of this site; "seed": by the run's seed, which the
                                 # server knows, so that a simulation has the same bits

# epsilon_at_most = 8            # runs must be private, with noise made here: epsilon of a run; by default any run
# epsilon_in_all = 16            # of all private runs of this folder together; by default that of one run
# delta_at_most = 1e-5           # of a run, wherever one of the other rules of privacy is set
# unit = "patient"               # who must be protected: "row", "patient"; "client" leaves the noise to the server

# Code of others that runs may name, with its digest by `fedsaddle deploy digest my_package`; by default none.
# modules = { "my_package" = "sha256:0000000000000000000000000000000000000000000000000000000000000000" }
# device = "cuda"                # where tasks run here: "auto", "cpu", "cuda", "cuda:1", "mps"; by default "cpu"
"""
RESERVED = {
    "noise": "noise is asked for by epsilon_at_most",
}
USUAL_DELTA = 1e-5
Names = Annotated[list[str], Field(min_length=1)] | None
Epsilon = Annotated[float, Field(gt=0, le=1000, strict=False)]
Delta = Annotated[float, Field(gt=0, lt=1)]
Number = Annotated[int, Field(ge=1, le=10**12)]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class SitePolicy(BaseModel):
    """The rules of one site; a stricter rule of the config counts, too.

    Args:
        minimum_cell: the least count that leaves.
        minimum_rows: of training rows, and of rows that a model is measured on.
        minimum_sites: that an average must be of.
        columns: that may be read, besides the label; None: those of the config.
        algorithms: names that may be run, None: that of the config.
        problems: names that may be run, None: that of the config.
        secure_aggregation: averaged fields may leave behind masks only.
        most_rounds: of a run; None: as many as the site's config says.
        most_evaluations: models measured in a run; None: what the config needs, and some more.
        most_runs: that may begin within 31 days.
        draws: of minibatches; "seed": the server can know them.
        modules: own code that runs may name -> its digest.
        device: where this site's tasks run: "auto", "cpu", "cuda", "cuda:1" or "mps".
        epsilon_at_most: of a run; None: no privacy is asked for.
        epsilon_in_all: of all private runs of this folder together; None: that of one run.
        delta_at_most: of a run; None: 1e-5 if one of the other rules of privacy is set.
        unit: who must be protected; "client" trusts the server.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    minimum_cell: Number = 5
    minimum_rows: Number = 20
    minimum_sites: Number = 3
    columns: Names = None
    algorithms: Names = None
    problems: Names = None
    secure_aggregation: bool = False
    most_rounds: Number | None = None
    most_evaluations: Number | None = None
    most_runs: Number = 20
    draws: Literal["secret", "seed"] = "secret"
    modules: dict[str, Digest] = Field(default_factory=dict)
    device: str = "cpu"
    epsilon_at_most: Epsilon | None = None
    epsilon_in_all: Epsilon | None = None
    delta_at_most: Delta | None = None
    unit: Literal["row", "patient", "client"] | None = None

    @field_validator("algorithms", "problems")
    @classmethod
    def _known(cls, names: list[str] | None, info: Any) -> list[str] | None:
        for name in names or ():
            try:
                group = str(info.field_name)
                if code_behind((group,), group, name) is not None:
                    continue  # code of others, which is not imported to look at it
                entry(ALGORITHMS if info.field_name == "algorithms" else PROBLEMS, info.field_name, name)
            except BadInput as reason:
                raise ValueError(reason.remedy) from None
        return names

    @field_validator("modules")
    @classmethod
    def _modules(cls, modules: dict[str, str]) -> dict[str, str]:
        for name in modules:
            if not is_module(name) or name.partition(".")[0] == OURS:
                raise ValueError(f"{visible(name)!r:.100} is no module of other people's code")
        return modules

    def cell(self, config: Config) -> int:
        """The least count that leaves: the larger one of the policy's and the config's."""
        return max(self.minimum_cell, config.data.minimum_cell)

    def rounds(self, config: Config) -> int:
        """Most rounds of a run."""
        return config.run.rounds if self.most_rounds is None else self.most_rounds

    def evaluations(self, config: Config) -> int:
        """Most models, times parts of the rows, that are measured in a run."""
        if self.most_evaluations is not None:
            return self.most_evaluations
        run = config.run
        due = -(-self.rounds(config) // run.evaluate_every) + 1  # the first model may be measured, too
        needed = due * (2 if run.evaluate_train else 1) + 3  # all three parts at the end
        return needed + max(5, needed // 4)

    def check(self, config: Config, sites: int) -> None:
        """Refuse a run that breaks a rule, before a row is read."""
        self.check_modules(config)
        for key, allowed, name in (
            ("algorithms", self.algorithms, config.algorithm.name),
            ("problems", self.problems, config.problem.name),
        ):
            if allowed is not None and name not in allowed:
                raise self.broken(key, allowed, f"the run has {name!r}")
        if sites < self.minimum_sites:
            raise self.broken("minimum_sites", self.minimum_sites, f"the run has {sites} sites")
        if self.secure_aggregation and not config.privacy.secure_aggregation:
            raise self.broken("secure_aggregation", "true", "the run has no secure aggregation")
        if config.data.name == "file" and self.columns is not None:
            named = config.data.options()
            for key in ("features", "numeric", "categorical", "optional_columns", "groups", "categories"):
                for column in named.get(key) or ():
                    if column not in self.columns:
                        raise self.broken("columns", self.columns, f"the run reads {column!r}")

    def check_privacy(self, privacy: PrivacySection, others: Callable[[], float]) -> None:
        """Refuse a run with less privacy than asked for; `others` gives the budgets of all other runs here."""
        ε, unit = privacy.epsilon, privacy.unit
        for key, most in (("epsilon_at_most", self.epsilon_at_most), ("epsilon_in_all", self.epsilon_in_all)):
            if most is not None and ε is None:
                raise self.broken(key, most, "the run has no [privacy]")
            if most is not None and ε is not None and ε > most:
                raise self.broken(key, most, f"the run has epsilon = {ε:g}")
        in_all = ε if self.epsilon_in_all is None else self.epsilon_in_all
        if in_all is not None and ε is not None and (sum_ := ε + others()) > in_all:
            raise Refused(over_all(in_all, sum_))
        rules = (self.unit, self.epsilon_at_most, self.epsilon_in_all, self.delta_at_most)
        if all(rule is None for rule in rules):
            return
        wanted = self.unit or "row"
        if ε is None or (unit != wanted and not (unit == "patient" and wanted == "row")):
            raise self.broken("unit", wanted, f"the run has {'no [privacy]' if ε is None else f'unit = {unit}'}")
        most = USUAL_DELTA if self.delta_at_most is None else self.delta_at_most
        if privacy.delta > most:  # with a large δ any ε can be kept with hardly any noise
            raise self.broken("delta_at_most", f"{most:g}", f"the run has delta = {privacy.delta:g}")

    def check_modules(self, config: Config) -> None:
        """Refuse a run with code that the policy does not list with its digest; nothing is imported for it."""
        with only_modules(self.modules):
            try:
                for code in named_code(config):
                    require_permitted(code)
            except BadInput as reason:  # a name that cannot be one
                raise Refused(f"this site's config has {reason}"[:400]) from None

    def broken(self, key: str, rule: object, why: str) -> Refused:
        """The refusal that names the rule."""
        return Refused(visible(f"this site's policy says {key} = {rule}; {why}")[:400])


def over_all(most: float, total: float) -> str:
    """Why a run is refused for what other runs have released."""
    told = f"this site's policy says epsilon_in_all = {most:g} (by default that of one run)"
    return f"{told}; with this run it would be {total:g}"


def read_policy(kit: Path) -> SitePolicy:
    """The policy in a site's folder, or the default one if there is no such file; raise `BadInput` for an error."""
    try:
        content = read_toml(FILE, kit / FILE)
    except FileNotFoundError:
        return SitePolicy()
    for key, why in RESERVED.items():
        if key in content:
            raise BadInput(f"{FILE}: {key}", content[key], f"{why}; take it out, so that nobody relies on it")
    try:
        return SitePolicy(**content)
    except ValidationError as error:
        raise to_bad_input(f"{FILE}: ", error.errors()[0], SitePolicy.model_fields) from None


def write_default_policy(kit: Path) -> None:
    """Write the default policy with its rules as comments, unless the site has one already."""
    if not (kit / FILE).exists():
        write_atomically(kit / FILE, EXAMPLE.encode(), 0o600)
