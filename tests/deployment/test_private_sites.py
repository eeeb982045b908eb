"""Privacy at real sites: noise from a secret of the site, a ledger that nobody resets, a policy that asks for it."""

from __future__ import annotations

import json
import stat

import pytest

pytest.importorskip("dp_accounting")

import torch
from in_process import OPEN, config, deployed, simulated, sites

from fedsaddle.config.schema import PrivacySection, validate_config
from fedsaddle.deployment.ledger import LEDGER, SECRET, read_ledger
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.errors import BadCheckpoint, BadInput, Refused, TooFewAnswered
from fedsaddle.privacy.client_level import FILE as SERVER_LEDGER
from privacy_quickly import coarse_accountant  # noqa: F401


def conf(rounds=2, **privacy):
    plain = config({"name": "FedAvg", "local_steps": 2}, rounds=rounds, checkpoint_every=1)
    return plain.model_copy(update={"privacy": PrivacySection(**privacy)})


def ledger(folder, site=0):
    return json.loads((folder / f"disk-{site}" / "trial" / LEDGER).read_text())


def test_a_deployed_run_makes_its_own_noise_and_keeps_a_ledger(tmp_path):
    given = conf(epsilon=4.0)
    result = deployed(given, sites(given, tmp_path), tmp_path / "out")
    assert result.summary["privacy"]["epsilon_spent"] <= 4
    assert "train" not in result.summary, "figures of training rows are no part of the budget"
    assert not torch.equal(result.model, simulated(given).model), "the server knows the seed, but not the noise"
    kept = ledger(tmp_path)
    assert kept["spent"] == kept["planned"] == [[4, 1, 4]]
    assert len(kept["answered"]) == 2
    secret = tmp_path / "disk-0" / "trial" / SECRET
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_bytes() != (tmp_path / "disk-1" / "trial" / SECRET).read_bytes()


def test_losses_of_single_sites_leave_with_noise(tmp_path):
    given = config({"name": "DRFA", "local_steps": 2, "weighting": "weight"}, rounds=1)
    given = given.model_copy(update={"privacy": PrivacySection(epsilon=4.0)})
    result = deployed(given, sites(given, tmp_path), tmp_path / "out")
    assert result.summary["rounds"] == 1
    assert not any(site["left_out"] for site in result.summary["sites"].values())
    assert sorted(ledger(tmp_path)["spent"]) == [[4, 1, 3]], "two steps and a loss"


def test_patients_are_the_unit_at_a_site(tmp_path):
    held = {"test_share": 0.3, "together": "patient", "features": ["age"]}
    given = validate_config(
        {
            "data": {"name": "file", "path": "x.csv", "target": "ill", **held},
            "split": {"name": "natural"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "FedAvg", "batch_size": 4, "local_steps": 1},
            "run": {"rounds": 1},
            "privacy": {"epsilon": 4.0, "unit": "patient"},
        }
    )
    made = {}
    for i in range(3):
        path = tmp_path / f"{i}.csv"
        rows = [f"{(7 * r + i) % 11},{r // 3},{'yes' if r // 3 % 3 else 'no'}" for r in range(60)]
        path.write_text("age,patient,ill\n" + "\n".join(rows) + "\n")
        made[i] = SiteService(given, SiteSettings(f"site-{i + 1}", path, tmp_path / f"disk-{i}"), OPEN)
    result = deployed(given, made, tmp_path / "out")
    assert result.summary["privacy"]["unit"] == "patient"
    kept = ledger(tmp_path)
    assert kept["units"] == made[0]._rows().count("train") / 3, "patients, not rows"
    assert kept["spent"] == [[4, 1, 1]]


def test_the_server_makes_the_noise_of_whole_clients(tmp_path):
    plain = config({"name": "FedAvg", "local_steps": 2, "weighting": "uniform"}, rounds=2)
    given = plain.model_copy(update={"privacy": PrivacySection(epsilon=4.0, unit="client")})
    result = deployed(given, sites(given, tmp_path), tmp_path / "out")
    assert 0 < result.summary["privacy"]["epsilon_spent"] <= 4
    stored = tmp_path / "out" / SERVER_LEDGER
    assert len(json.loads(stored.read_text())["released"]) == 2
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert not torch.equal(result.model, deployed(given, sites(given, tmp_path / "2"), tmp_path / "out-2").model)


def test_a_round_that_is_asked_again_gets_the_same_reply_and_counts_once(tmp_path):
    given = conf(epsilon=4.0)
    result = deployed(given, sites(given, tmp_path), tmp_path / "out")
    newest = sorted((tmp_path / "out" / "checkpoints").iterdir())[-2:]
    for file in newest:  # the server forgets the last round
        file.unlink()
    before = ledger(tmp_path)
    again = deployed(given, {i: type(s)(s.config, s.settings, s.policy) for i, s in sites(given, tmp_path).items()},
                     tmp_path / "out")  # fmt: skip
    assert torch.equal(again.model, result.model)
    assert ledger(tmp_path) == before


def test_a_spent_budget_is_not_spent_again(tmp_path):
    given = conf(epsilon=4.0)
    deployed(given, sites(given, tmp_path), tmp_path / "out")
    other = given.model_copy(update={"run": given.run.model_copy(update={"seed": 7})})
    with pytest.raises(TooFewAnswered):  # other batches, another start: under the same name it is the same budget
        deployed(other, sites(other, tmp_path), tmp_path / "out-2")
    assert ledger(tmp_path)["spent"] == [[4, 1, 4]]
    (tmp_path / "disk-0" / "trial" / LEDGER).write_text("{}")
    with pytest.raises(BadCheckpoint, match="nothing more is released"):
        read_ledger(tmp_path / "disk-0" / "trial")


def test_the_audit_shows_what_is_left_and_another_name_is_no_new_budget(tmp_path, capsys):
    from fedsaddle.commands.deploy import audit
    from fedsaddle.deployment.courier import InProcess, Patience
    from fedsaddle.deployment.server import DeployedRun

    given = conf(epsilon=4.0)
    made = sites(given, tmp_path)
    deployed(given, made, tmp_path / "out")
    audit(tmp_path / "disk-0", None)
    said = capsys.readouterr().out
    assert "privacy of run trial: epsilon = " in said
    assert "of 4 spent, " in said
    transport = InProcess({i: site.answer for i, site in made.items()})
    names = tuple(made[i].settings.name for i in sorted(made))
    with pytest.raises(TooFewAnswered, match=r"epsilon_in_all = 4 \(by default that of one run\)"):
        DeployedRun(given, "another", names, tmp_path / "out-2", Patience()).go(transport)


POLICIES = {
    "too much": ({"epsilon_at_most": 2.0}, "epsilon_at_most = 2.0; the run has epsilon = 4"),
    "another unit": ({"unit": "patient"}, "unit = patient; the run has unit = row"),
    "a larger delta": ({"delta_at_most": 1e-6}, "delta_at_most = 1e-06; the run has delta = 1e-05"),
    "in all": ({"epsilon_in_all": 3.0}, "epsilon_in_all = 3.0; the run has epsilon = 4"),
}


@pytest.mark.parametrize(("rule", "complaint"), POLICIES.values(), ids=POLICIES)
def test_a_policy_refuses_runs_with_less_privacy(tmp_path, rule, complaint):
    given = conf(epsilon=4.0)
    with pytest.raises(TooFewAnswered, match=complaint):
        deployed(given, sites(given, tmp_path, OPEN.model_copy(update=rule)), tmp_path / "out")


def test_a_policy_refuses_runs_without_privacy_and_counts_all_runs():
    policy = OPEN.model_copy(update={"epsilon_at_most": 8.0, "epsilon_in_all": 10.0})
    for privacy, others, complaint in (
        (PrivacySection(), 0.0, "the run has no"),
        (PrivacySection(epsilon=8.0), 4.0, "with this run it would be 12"),
        (PrivacySection(epsilon=8.0, unit="client"), 0.0, "unit = row; the run has unit = client"),
        (PrivacySection(epsilon=8.0, delta=0.5), 0.0, "delta_at_most = 1e-05; the run has delta = 0.5"),
    ):
        with pytest.raises(Exception, match=complaint):
            policy.check_privacy(privacy, lambda others=others: others)
    policy.check_privacy(PrivacySection(epsilon=8.0, unit="patient"), lambda: 2.0)
    loose = policy.model_copy(update={"delta_at_most": 1e-3})
    loose.check_privacy(PrivacySection(epsilon=8.0, delta=1e-4), lambda: 2.0)
    with pytest.raises(Refused, match="unit = row; the run has no"):
        OPEN.model_copy(update={"delta_at_most": 1e-3}).check_privacy(PrivacySection(), lambda: 0.0)
    OPEN.check_privacy(PrivacySection(), lambda: 100.0)


@pytest.mark.parametrize(
    "given",
    [
        {"unit": "patient"},
        {"delta": 1e-6},
        {"clip": 2.0},
        {"rounds": 9},
        {"secure_aggregation": True, "unit": "client"},
    ],
)
def test_settings_of_privacy_without_epsilon_promise_nothing(given):
    plain = config({"name": "FedAvg"}).model_dump(exclude_unset=True)
    name = next(key for key in given if key != "secure_aggregation")
    with pytest.raises(BadInput, match=rf"privacy.{name} = .*: protects nobody without epsilon; give privacy.epsilon"):
        validate_config({**plain, "privacy": given})
    validate_config({**plain, "privacy": {"secure_aggregation": True}})
