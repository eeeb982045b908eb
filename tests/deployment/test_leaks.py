"""What must not leave a site: names, file names, columns that nobody named, single rows; and what the policy says."""

from __future__ import annotations

import json
import os
import re
import stat

import numpy as np
import pytest
import torch
from in_process import OPEN, config, deployed, simulated, sites

from fedsaddle.config.schema import Config, validate_config
from fedsaddle.deployment.audit import AUDIT_FILE, read_audit
from fedsaddle.deployment.courier import InProcess
from fedsaddle.deployment.messages import Answer, Ask, Request
from fedsaddle.deployment.project import require_deployable, require_named_columns
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.errors import BadInput, TooFewAnswered
from fedsaddle.federation.wire import Message, about, pack, unpack

HEAD = "age,name,ward,dose,label"
STRICT = SitePolicy(draws="seed")


def rows_of(site: int, rows: int = 60, odd_units: bool = False) -> list[str]:
    """Patients with names; one ward has three of them at each site; some cells are missing."""
    chance = np.random.default_rng((5, site))
    made = []
    for n in range(rows):
        ward = "rare-ward" if n % 20 == 7 else chance.choice(["a", "b", f"only-{site}"])
        age = "" if chance.random() < 0.2 else f"{chance.normal(60, 10):.1f}"
        dose = chance.normal(10, 1) * (1000 if odd_units else 1)
        made.append(f"{age},Patient-{site}-{n},{ward},{dose:.3f},{'ill' if n % 3 else 'well'}")
    return made


def files(folder, count: int = 4, **kind) -> None:
    for i in range(count):
        own = rows_of(i, odd_units=kind.get("odd") == i)
        (folder / f"rows-{i + 1}.csv").write_text("\n".join([HEAD, *own]) + "\n")
    pooled = [f"{line},site-{i + 1}" for i in range(count) for line in rows_of(i, odd_units=kind.get("odd") == i)]
    (folder / "rows.csv").write_text("\n".join([f"{HEAD},client", *pooled]) + "\n")


def of_files(folder, run=None, **data) -> Config:
    named = {"features": ["age", "ward", "dose"], "test_share": 0.0, "minimum_cell": 5, **data}
    return validate_config(
        {
            "data": {"name": "file", "path": str(folder / "rows.csv"), "target": "label", **named},
            "split": {"name": "natural"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "FedAvg", "local_steps": 3, "batch_size": 8},
            "run": {"rounds": 4, "dtype": "float64", **(run or {})},
        }
    )


def services(given: Config, folder, count: int = 4, policy: SitePolicy = STRICT) -> dict[int, SiteService]:
    made = [SiteSettings(f"site-{i + 1}", folder / f"rows-{i + 1}.csv", folder / f"disk-{i}") for i in range(count)]
    return {i: SiteService(given, own, policy) for i, own in enumerate(made)}


class Tapped(InProcess):
    """Keeps all that leaves the sites."""

    def __init__(self, made) -> None:
        super().__init__({i: site.answer for i, site in made.items()})
        self.crossed: list[tuple[str, bytes]] = []

    def exchange(self, clients, content, least, timeout):
        arrivals = super().exchange(clients, content, least, timeout)
        self.crossed += [(about(content).get("do", "task"), a.content) for a in arrivals]
        return arrivals

    def told(self, do: str) -> list:
        return [unpack(content, {}).record for kind, content in self.crossed if kind == do]


def run(given: Config, folder, made=None, **patience):
    made = made or services(given, folder)
    tapped = Tapped(made)
    return deployed(given, made, folder / "out", tapped, **patience), tapped


# names and categories


def test_names_of_patients_do_not_leave_even_if_their_column_is_named(tmp_path):
    files(tmp_path)
    _, tapped = run(of_files(tmp_path, features=["age", "name", "ward", "dose"]), tmp_path)
    wire = b"".join(content for _, content in tapped.crossed)
    assert b"Patient-" not in wire
    assert b"only-2" in wire, "a ward of many patients is told"
    assert b"rare-ward" not in wire, "one of three at each site is not"


def test_a_listed_category_has_a_feature_and_its_small_count_does_not_leave(tmp_path):
    files(tmp_path)
    listed = {"ward": ["a", "b", "rare-ward"]}
    given = of_files(tmp_path, categories=listed)
    found, tapped = run(given, tmp_path)
    assert all(b"rare-ward" not in content for _, content in tapped.crossed)
    features = [f["category"] for f in json.loads((tmp_path / "out" / "features.json").read_text()) if "category" in f]
    assert features == ["a", "b", "rare-ward"]
    assert torch.equal(found.model, simulated(given).model)


@pytest.mark.parametrize("data", [{}, {"hinges": 2, "site_intercept": True}, {"positive": "ill"}, {"minimum_cell": 9}],
                         ids=["plain", "hinges", "positive", "nine"])  # fmt: skip
def test_a_simulation_with_the_same_least_cell_has_the_same_bits(tmp_path, data):
    files(tmp_path)
    given = of_files(tmp_path, **data)
    found, _ = run(given, tmp_path)
    assert torch.equal(found.model, simulated(given).model)
    other = given.model_copy(update={"data": given.data.model_copy(update={"minimum_cell": 1})})
    assert found.model.shape != simulated(other).model.shape or not torch.equal(found.model, simulated(other).model)


def test_every_count_that_is_told_is_none_or_at_least_five(tmp_path):
    files(tmp_path)
    for i in range(4):  # two labels that are rare at the first site
        own = rows_of(i)
        if i == 0:
            own = [line.replace(",well", ",ill") if n > 8 else line for n, line in enumerate(own)]
        (tmp_path / f"rows-{i + 1}.csv").write_text("\n".join([HEAD, *own]) + "\n")
    _, tapped = run(of_files(tmp_path), tmp_path)
    facts, seen = tapped.told("facts"), 0
    for one in facts:
        cells = [*one["target"]["counts"], one["target"]["withheld"]]
        for column in one["columns"]:
            cells += [*column.get("counts", {}).values(), column["missing"], column.get("other", 0)]
            cells += [column["count"]] if "count" in column else []
        assert all(n == 0 or n >= 5 for n in cells)
        seen += len(cells)
    assert facts[0]["target"] == {**facts[0]["target"], "counts": [0], "withheld": 60, "values": ["ill"]}
    assert facts[1]["target"]["counts"] == [40, 20]
    for one in tapped.told("counts"):
        assert bool(((one["counts"] == 0) | (one["counts"] >= 5)).all())
        assert one["counts"].sum(dim=1).tolist()[1] == 60
    for one in tapped.told("measure"):
        for side in one.get("scores", ()):
            assert all(n == 0 or n >= 5 for n in side)
    assert seen > 50
    assert "scores" not in tapped.told("measure")[0], "3 of 60 are well there"


def test_few_cells_of_a_column_are_withheld(tmp_path):
    files(tmp_path)
    lines = [line.split(",") for line in rows_of(1)]
    own = [",".join([f"{50 + n}" if n in (4, 9, 30) else "", *cells[1:]]) for n, cells in enumerate(lines)]
    (tmp_path / "rows-2.csv").write_text("\n".join([HEAD, *own]) + "\n")
    _, tapped = run(of_files(tmp_path), tmp_path)
    told = {column["name"]: column for column in tapped.told("facts")[1]["columns"]}
    assert told["age"] == {"kind": "empty", "name": "age", "missing": 60}
    assert tapped.told("counts")[1]["counts"][0].sum() == 0


# columns and keys


def test_columns_that_nobody_named_are_not_read(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path, features=None)
    with pytest.raises(BadInput, match=r"data.features = None: name the columns that sites may read: features = \["):
        require_named_columns(given, [tmp_path / "rows-1.csv"])
    with pytest.raises(TooFewAnswered, match=r"site-1 refused: data.features = None: name the columns"):
        run(given, tmp_path, patience=0)
    with pytest.raises(BadInput, match="name the columns"):
        require_named_columns(of_files(tmp_path, features=None, optional_columns=["age"]), [tmp_path / "rows-1.csv"])
    only = of_files(tmp_path, features=None, numeric=["age"], categorical=["ward"])
    _, tapped = run(only, tmp_path, services(only, tmp_path))
    assert [column["name"] for column in tapped.told("facts")[0]["columns"]] == ["age", "ward"]


MISSPELT = {
    "data": ({"featurs": ["age"]}, r"data.featurs = \['age'\]: unknown key; did you mean 'features'\?"),
    "an image": ({"image": "scan"}, r"data.image = 'scan': unknown key"),
}


@pytest.mark.parametrize(("data", "complaint"), MISSPELT.values(), ids=MISSPELT)
def test_unknown_keys_are_refused_at_server_and_sites(tmp_path, data, complaint):
    files(tmp_path)
    given = of_files(tmp_path, **data)
    with pytest.raises(BadInput, match=complaint):
        require_deployable(given)
    answer = ask_facts(services(given, tmp_path)[0], given)
    assert re.search(complaint, answer.failure.detail)


@pytest.mark.parametrize(
    ("section", "key", "near"),
    [("model", "hiden", "hidden"), ("problem", "l2_bias", "l2_biases"), ("algorithm", "local_step", "local_steps")],
)
def test_unknown_keys_of_other_sections(section, key, near):
    given = config({"name": "FedAvg"}).model_dump()
    given["model"] = {"name": "mlp", "hidden": [3]}
    given[section][key] = 1
    with pytest.raises(BadInput, match=rf"{section}.{key} = 1: unknown key; did you mean '{near}'\?"):
        require_deployable(validate_config(given))


def test_any_order_of_columns(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path)
    expected, _ = run(given, tmp_path)
    lines = [HEAD.split(","), *(line.split(",") for line in rows_of(2))]
    (tmp_path / "rows-3.csv").write_text("\n".join(",".join(cells[::-1]) for cells in lines) + "\n")
    found = deployed(given, services(given, tmp_path), tmp_path / "again")
    assert torch.equal(found.model, expected.model)


def test_other_units_at_one_site_are_warned_of_before_the_first_round(tmp_path):
    files(tmp_path, odd=2)
    given = of_files(tmp_path)
    made = services(given, tmp_path)
    warned: list[bool] = []

    class Looks(InProcess):
        def exchange(self, clients, content, least, timeout):
            if "do" not in about(content):
                warned.append("column 'dose' at site 'site-3' is far" in (tmp_path / "out" / "log.txt").read_text())
            return super().exchange(clients, content, least, timeout)

    deployed(given, made, tmp_path / "out", Looks({i: s.answer for i, s in made.items()}))
    assert warned[0]


# rows, sites, rules


def ask_facts(site: SiteService, given: Config, names=("site-1", "site-2", "site-3", "site-4")) -> Answer:
    from fedsaddle.deployment.agreement import digests

    request = Request(do="facts", run="trial", fingerprint="", nonce="n")
    payload = {"config": digests(given), "names": list(names)}
    return Answer.read(unpack(site.answer(pack(Message(request.to_dict(), payload))), {}).about)


def test_a_site_with_few_rows_refuses(tmp_path):
    files(tmp_path)
    (tmp_path / "rows-2.csv").write_text("\n".join([HEAD, rows_of(1)[0]]) + "\n")
    told = r"site-2 refused: this site's policy says minimum_rows = 20; the file here has fewer training rows"
    with pytest.raises(TooFewAnswered, match=told):
        run(of_files(tmp_path), tmp_path, patience=10_000)
    log = (tmp_path / "out" / "log.txt").read_text()
    assert "minimum_rows = 20" in log, "the operator sees it"


def test_few_test_rows_are_not_measured(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path, test_share=0.2)
    _, tapped = run(given, tmp_path)
    assert {one["test_rows"] for one in tapped.told("facts")} == {0}
    assert {one["rows"] for one in tapped.told("measure")} == {48}, "training rows"


def test_a_run_of_two_sites_is_refused_unless_both_allow_it(tmp_path):
    files(tmp_path, 2)
    given = of_files(tmp_path)
    with pytest.raises(TooFewAnswered, match="this site's policy says minimum_sites = 3; the run has 2 sites"):
        run(given, tmp_path, services(given, tmp_path, 2), patience=0)
    two = services(given, tmp_path, 2, SitePolicy(minimum_sites=2))
    assert deployed(given, two, tmp_path / "two").summary["rounds"] == 4


class Absent(InProcess):
    """Sites 1 and 2 answer no task."""

    def exchange(self, clients, content, least, timeout):
        tasks = "do" not in about(content)
        return super().exchange([i for i in clients if not tasks or i > 1], content, least, timeout)


def test_an_average_of_two_sites_is_refused(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path)
    made = services(given, tmp_path)
    with pytest.raises(TooFewAnswered, match="round 1, exchange 1: 2 of at least 3 sites answered"):
        deployed(given, made, tmp_path / "out", Absent({i: s.answer for i, s in made.items()}), patience=0)
    small = given.model_copy(update={"algorithm": type(given.algorithm)(name="FedAvg", sampled_clients=2)})
    with pytest.raises(BadInput, match=r"algorithm.sampled_clients = 2: policies of sites ask for averages of at le"):
        run(small, tmp_path / "..", services(small, tmp_path))


def test_rounds_with_too_small_a_cohort_change_nothing(tmp_path):
    given = config({"name": "DRFA", "sampled_clients": 3, "local_steps": 3}, rounds=8)
    made = sites(given, tmp_path, SitePolicy(minimum_cell=1, minimum_rows=1, minimum_sites=3))
    deployed(given, made, tmp_path / "out")
    asked = {
        site: {e.round for e in read_audit(tmp_path / f"disk-{site}") if e.request == "local_sgd"} for site in made
    }
    for r in range(8):
        assert sum(r in rounds for rounds in asked.values()) in (0, 3, 4)
    assert (
        "a cohort of 2 sites; policies of sites ask for averages of at least 3"
        in (tmp_path / "out/log.txt").read_text()
    )


RULES = {
    "algorithms": ({"algorithms": ["DRFA"]}, "algorithms = ['DRFA']; the run has 'FedAvg'"),
    "problems": ({"problems": ["auc"]}, "problems = ['auc']; the run has 'supervised'"),
    "columns": ({"columns": ["age", "ward"]}, "columns = ['age', 'ward']; the run reads 'dose'"),
    "most_rounds": ({"most_rounds": 2}, "most_rounds = 2; the run is at 3"),
    "most_evaluations": ({"most_evaluations": 2}, "most_evaluations = 2; so many models were measured"),
}


@pytest.mark.parametrize(("rule", "told"), RULES.values(), ids=RULES)
def test_a_run_that_breaks_a_rule_is_refused_and_the_operator_sees_it(tmp_path, rule, told):
    files(tmp_path)
    given = of_files(tmp_path)
    made = services(given, tmp_path)
    made[1].policy = SitePolicy(**rule)
    with pytest.raises(TooFewAnswered) as reason:
        deployed(given, made, tmp_path / "out", patience=0, minimum=4)
    assert f"site-2 refused: this site's policy says {told}" in str(reason.value)


def test_a_site_agrees_to_no_more_runs_than_its_policy_says(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path)
    made = services(given, tmp_path, policy=SitePolicy(most_runs=1))
    run(given, tmp_path, made)
    request = Request(do="facts", run="another", fingerprint="", nonce="n")
    from fedsaddle.deployment.agreement import digests

    payload = {"config": digests(given), "names": ["site-1", "site-2", "site-3"]}
    answer = Answer.read(unpack(made[0].answer(pack(Message(request.to_dict(), payload))), {}).about)
    assert "most_runs = 1; it took part in 1 runs in 31 days" in answer.failure.detail


# models that are measured


class Agrees(InProcess):
    """Sites that answer until the first round."""

    def __init__(self, made) -> None:
        super().__init__({i: site.answer for i, site in made.items()})

    def exchange(self, clients, content, least, timeout):
        return super().exchange(clients, content, least, timeout) if "do" in about(content) else []


def measure(site: SiteService, w: torch.Tensor, rounds: int, part: str = "train", run: str = "trial"):
    request = Request(do="measure", run=run, fingerprint=site._runs[run].worker.fingerprint, nonce="n")
    payload = {"w": w, "dual": None, "part": part, "rounds": rounds}
    message = unpack(site.answer(pack(Message(request.to_dict(), payload))), {})
    return Answer.read(message.about), message.record


def test_unit_vectors_tell_nothing_of_single_rows_and_are_limited(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path)
    made = services(given, tmp_path)
    run(given, tmp_path, made)
    size = made[1]._runs["trial"].worker.algorithm.problem.initial().numel()
    foreign = torch.full((size,), 7.0, dtype=torch.float64)
    answer, _ = measure(made[1], foreign, 10**9)
    assert "the run has 4 rounds, and this model is said to be of round 1000000000" in answer.failure.detail
    answer, _ = measure(made[1], foreign, 4)
    assert answer.failure.detail == "another model was measured after round 4; this site answers no more in this run"
    again = services(given, tmp_path)[1]  # a new process knows that
    again._agreed_run("trial")
    answer, _ = measure(again, foreign, 2)
    assert "another model was measured after round 4" in answer.failure.detail


def test_models_that_no_task_carries_are_few_and_limited(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path, run={"rounds": 40, "evaluate_every": 40})
    made = services(given, tmp_path)
    for limit, expected in ((100, "5 models were measured that no task has carried"), (2, "most_evaluations = 2")):
        for site in made.values():
            site.policy = STRICT.model_copy(update={"most_evaluations": limit})
        name = f"limit-{limit}"
        with pytest.raises(TooFewAnswered):
            deployed(given, made, tmp_path / name, Agrees(made), name=name, patience=0)
        site, told = made[1], []
        size = site._runs[name].worker.algorithm.problem.initial().numel()
        for k in range(7):
            w = torch.zeros(size, dtype=torch.float64)
            w[k % size] = 1.0 + k
            answer, reply = measure(site, w, k, run=name)
            told.append(reply if answer.failure is None else answer.failure.detail)
        assert expected in told[-1]
        assert [isinstance(one, str) for one in told].count(False) == min(limit, 5)
        for one in told[: min(limit, 5)]:
            assert all(n == 0 or n >= 5 for side in one["scores"] for n in side)


class Probes(Tapped):
    """A server that has another model measured at site 2, once."""

    probed = False

    def exchange(self, clients, content, least, timeout):
        message = about(content)
        if message.get("do") == "measure" and not self.probed:
            asked = unpack(content, {})
            if asked.record["rounds"] == 2:
                self.probed = True
                spoilt = pack(Message(asked.about, {**asked.record, "w": asked.record["w"] + 1}))
                self.sites[1](spoilt)
        return super().exchange(clients, content, least, timeout)


def test_a_model_that_is_not_the_runs_ends_the_run_at_that_site(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path)
    made = services(given, tmp_path)
    result = deployed(given, made, tmp_path / "out", Probes(made))
    why = "another model was measured after round 2"
    assert any(why in told for told in result.summary["sites"]["site-2"]["left_out"])
    assert why in (tmp_path / "disk-1" / "log.txt").read_text()
    restarted = services(given, tmp_path)[1]
    restarted._agreed_run("trial")
    answer, _ = measure(restarted, torch.zeros(1), 3)
    assert answer.failure is not None


OUTPUTS = {
    "FedAvg": {"name": "FedAvg", "local_steps": 2},
    "DRFA": {"name": "DRFA", "local_steps": 2},
    "SPIDER": {"name": "FedSGDA-SPIDER"},
    "momentum": {"name": "Momentum Local SGDA", "momentum_at_sync": "reset"},
    "average": {"name": "FedAvg", "local_steps": 2, "output": "average"},
    "CODASCA": {"name": "CODASCA"},
    "FedX2": {"name": "FedX2"},
}


@pytest.mark.parametrize("algorithm", OUTPUTS.values(), ids=OUTPUTS)
def test_honest_runs_are_never_taken_for_probing(tmp_path, algorithm):
    kinds = {"CODASCA": "auc", "FedX2": "pairwise", "FedSGDA-SPIDER": "auc", "Momentum Local SGDA": "auc"}
    problem = {"name": kinds[algorithm["name"]]} if algorithm["name"] in kinds else None
    given = config(algorithm, data="breast-cancer", problem=problem, rounds=5)
    result = deployed(given, sites(given, tmp_path), tmp_path / "out")
    assert all(not one["left_out"] for one in result.summary["sites"].values())


# the log


def test_the_log_has_all_that_left_and_survives_restarts(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path)
    _, tapped = run(given, tmp_path)
    entries = read_audit(tmp_path / "disk-1")
    tasks = [e for e in entries if e.request == "local_sgd"]
    assert [e.round for e in tasks] == [0, 1, 2, 3]
    assert {(e.field, e.visibility, e.dtype) for e in tasks} == {("final", "averaged", "float64")}
    assert tasks[0].bytes == 8 * tasks[0].shape[-1]
    fields = {(e.request, e.field) for e in entries}
    assert {("facts", "column ward"), ("facts", "target.counts"), ("measure", "scores"), ("agree", "rows")} <= fields
    left = sum(kind == "measure" for kind, _ in tapped.crossed) / 4
    assert sum(e.request == "measure" and e.field == "rows" for e in entries) == left
    path = tmp_path / "disk-1" / AUDIT_FILE
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    deployed(given, services(given, tmp_path), tmp_path / "second")
    assert len(read_audit(tmp_path / "disk-1")) > len(entries)
    assert read_audit(tmp_path / "disk-1")[: len(entries)] == entries


def test_nothing_leaves_without_a_log(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path)
    site = services(given, tmp_path)[0]
    (tmp_path / "disk-0" / AUDIT_FILE).mkdir(parents=True)
    assert ask_facts(site, given).failure.detail == (
        "it cannot write to its disk (Is a directory); make room there, then resume the run"
    )


# pictures


def picture_tables(folder, count: int = 3, rows: int = 24) -> None:
    from PIL import Image

    pooled = ["file,label,site"]
    for i in range(count):
        home = folder / f"site-{i + 1}"
        home.mkdir()
        chance, lines = np.random.default_rng(i), ["label,file"]
        for n in range(rows):
            label, name = ("ill", "well")[n % 2], f"Jane-Doe-{i}-{n}.png"
            pixels = (chance.integers(0, 120, (6, 6)) + (120 if n % 2 else 0)).astype(np.uint8)
            Image.fromarray(pixels).save(home / name)
            lines.append(f"{label},{name}")
            pooled.append(f"site-{i + 1}/{name},{label},site-{i + 1}")
        (home / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "rows.csv").write_text("\n".join(pooled) + "\n")


def test_pictures_are_deployed_and_file_names_stay(tmp_path):
    picture_tables(tmp_path)
    given = validate_config(
        {
            "data": {"name": "pictures", "path": str(tmp_path / "rows.csv"), "size": 6, "test_share": 0.0},
            "split": {"name": "natural", "column": "site"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "FedAvg", "local_steps": 3, "batch_size": 4},
            "run": {"rounds": 4, "dtype": "float64"},
        }
    )
    made = {
        i: SiteService(
            given, SiteSettings(f"site-{i + 1}", tmp_path / f"site-{i + 1}/rows.csv", tmp_path / f"disk-{i}"), STRICT
        )
        for i in range(3)
    }
    found, tapped = run(given, tmp_path, made)
    assert all(b"Jane" not in content and b"png" not in content for _, content in tapped.crossed)
    assert torch.allclose(found.model, simulated(given).model, atol=1e-5)
    assert found.summary["train"]["accuracy"]["global"] > 0.9


def test_a_picture_that_is_not_there_is_not_named_to_the_server(tmp_path):
    picture_tables(tmp_path)
    next((tmp_path / "site-1").glob("Jane-*")).unlink()
    given = config({"name": "FedAvg"})
    given = given.model_copy(update={"data": type(given.data)(name="pictures", size=6)})
    site = SiteService(given, SiteSettings("site-1", tmp_path / "site-1/rows.csv", tmp_path / "disk-0"), OPEN)
    told = ask_facts(site, given).failure.detail
    assert told == "cannot read its data file: it is not a table as the config describes it; see the site's log"
    assert "Jane" in (tmp_path / "disk-0" / "log.txt").read_text()


def test_a_task_of_a_run_is_refused_after_the_rounds_that_were_agreed(tmp_path):
    files(tmp_path)
    given = of_files(tmp_path)
    made = services(given, tmp_path)
    run(given, tmp_path, made)
    worker = made[0]._runs["trial"].worker
    ask = Ask(
        run="trial",
        fingerprint=worker.fingerprint,
        nonce="n",
        round=4,
        exchange=0,
        task="local_sgd",
        starts={},
        keep={},
    )
    answer = Answer.read(unpack(made[0].answer(pack(Message(ask.to_dict(), None))), worker.kinds).about)
    assert "most_rounds = 4; the run is at 5" in answer.failure.detail
