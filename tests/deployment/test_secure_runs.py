"""Runs with secure aggregation from configs and files: keys, policies, losses, restarts, and what leaves a site."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from in_process import OPEN, config, deployed, sites
from in_process import simulated as simulated_run

import fedsaddle as fs
from fedsaddle.config.schema import Config, validate_config
from fedsaddle.deployment.audit import read_audit
from fedsaddle.deployment.courier import Arrival, InProcess
from fedsaddle.deployment.messages import Ask, KeyTold
from fedsaddle.deployment.secure_clients import ATTEMPTS
from fedsaddle.deployment.secure_site import (
    SIGNING_KEY,
    AnswerLogFile,
    read_identity,
    run_keys,
    site_secure,
    tell_key,
    write_site_keys,
)
from fedsaddle.deployment.site import SiteService
from fedsaddle.deployment.site_policy import SitePolicy, read_policy
from fedsaddle.errors import BadInput, Refused, TooFewAnswered
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.runs.run import run
from fedsaddle.secure.fixed_point import layout_of, read_layout, sum_of
from fedsaddle.secure.keys import sign
from fedsaddle.secure.masking import LoggedAnswer, Question


def secure(algorithm, on: bool = True, **more) -> Config:
    stored = config(algorithm, **more).model_dump(mode="json")
    return validate_config({**stored, "privacy": {"secure_aggregation": on}})


FEDAVG = secure({"name": "FedAvg", "local_steps": 2}, rounds=2, evaluate_every=2)
SINGLE = secure({"name": "FedAvg", "local_steps": 2}, rounds=2, evaluate_every=2, dtype="float32")
DRFA = secure({"name": "DRFA", "weighting": "weight", "local_steps": 2}, rounds=2, evaluate_every=2)
CODASCA = secure({"name": "CODASCA"}, data="breast-cancer", problem={"name": "auc"}, rounds=3, evaluate_every=3)
CASES = {
    "single precision": SINGLE,
    "DRFA": DRFA,
    "FedAvg": pytest.param(FEDAVG, marks=pytest.mark.slow),
    "CODASCA": pytest.param(CODASCA, marks=pytest.mark.slow),
}


def simulated(given: Config, **options):
    return simulated_run(given, privacy=fs.Privacy(secure_aggregation=True), **options)


def secure_sites(given: Config, folder, policy: SitePolicy = OPEN) -> dict[int, SiteService]:
    """Sites with signing keys, as kits have them."""
    made = sites(given, folder, policy)
    kits = {one.settings.name: folder / one.settings.name for one in made.values()}
    write_site_keys(kits, list(kits))
    for one in made.values():
        one.identity = read_identity(kits[one.settings.name], one.settings.name)
    return made


@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
def test_a_deployed_run_is_the_simulated_one(given, tmp_path):
    found, expected = deployed(given, secure_sites(given, tmp_path), tmp_path / "out"), simulated(given)
    assert torch.equal(found.model, expected.model)
    assert found.summary["ledger"] == expected.summary["ledger"]
    seen, of_tasks = found.summary["secure_aggregation"], expected.summary["secure_aggregation"]
    figures = ("BinCounts.", "SquareSums.")  # a simulation has the rows
    assert {key: [name for name in seen[key] if not name.startswith(figures)] for key in seen} == of_tasks
    assert "robust" not in found.summary  # bounds would have to see each reply
    plain = simulated_run(given)
    step = 1e-10 if given.run.dtype == "float64" else 1e-6
    torch.testing.assert_close(found.model, plain.model, rtol=0, atol=step)
    assert not torch.equal(found.model, plain.model)  # it went through the fixed point


def test_the_log_of_a_site_says_what_left_as_a_sum_only(tmp_path):
    made = secure_sites(DRFA, tmp_path)
    found = deployed(DRFA, made, tmp_path / "out")
    assert found.summary["secure_aggregation"] == {
        "sums": ["LocalModels.final", "LocalModels.snapshot"], "single": ["LocalLoss.loss"],
    }  # fmt: skip
    entries = read_audit(made[0].settings.folder)
    seen = {(e.request, e.field): (e.visibility, e.dtype) for e in entries}
    assert seen["local_sgd", "final"] == seen["local_sgd", "snapshot"] == ("sum only", "fixed64")
    assert seen["local_sgd", "weight"] == ("sum only", "fixed64")
    assert seen["local_loss", "loss"] == ("per client", "float64")
    assert seen["unmask", "own"][0] == seen["keys", "public"][0] == "per client"
    assert not any(e.visibility == "averaged" for e in entries)
    d = found.model.numel()
    masked = [(e.shape, e.bytes) for e in entries if (e.request, e.field) == ("local_sgd", "final")]
    assert masked == [([1, d], 8 * d)] * 2, "as a reply of one client has it"
    secrets = {path.read_bytes() for path in tmp_path.rglob("secure.key")}
    assert len(secrets) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.rglob("*.key"))


class Tampering(InProcess):
    """Changes what the server sends, or what arrives."""

    def __init__(self, made, sent=lambda content: content, arrived=lambda arrival, content: arrival):
        super().__init__({i: site.answer for i, site in made.items()})
        self.sent, self.arrived, self.view = sent, arrived, []

    def exchange(self, clients, content, least, timeout):
        content = self.sent(content)
        arrivals = [self.arrived(a, content) for a in super().exchange(clients, content, least, timeout)]
        self.view += [(content, a) for a in arrivals if a is not None]
        return [a for a in arrivals if a is not None]


def quick(given, made, out, transport):
    return deployed(given, made, out, transport, minimum=3, patience=0.0, timeout=1.0)


def swapped(change):
    """The server puts something else in place of the key of the second site."""

    def sent(content):
        if about(content).get("do") != "agree":
            return content
        message = unpack(content, {})
        keys = dict(message.record["keys"])
        keys["site-2"] = change(keys)
        return pack(Message(message.about, {**message.record, "keys": keys}))

    return sent


@pytest.mark.parametrize(
    "change",
    [
        lambda keys: {**keys["site-2"], "public": keys["site-1"]["public"]},
        lambda keys: keys["site-1"],
        lambda keys: {**keys["site-2"], "signature": "00" * 64},
    ],
    ids=["another key", "key and signature of another site", "no signature"],
)
def test_a_swapped_key_is_refused(change, tmp_path):
    made = secure_sites(FEDAVG, tmp_path)
    with pytest.raises(TooFewAnswered, match=r"site-1 refused: the key of site-2 is not signed by site-2"):
        quick(FEDAVG, made, tmp_path / "out", Tampering(made, swapped(change)))


def test_a_missing_key_and_a_site_without_keys_are_refused(tmp_path):
    made = secure_sites(FEDAVG, tmp_path)
    made[1].identity = None
    with pytest.raises(TooFewAnswered, match="site-2 refused: this site has no signing key"):
        quick(FEDAVG, made, tmp_path / "out", Tampering(made))
    made = secure_sites(FEDAVG, tmp_path / "b")
    made[0].identity.known.pop("site-3")
    with pytest.raises(TooFewAnswered, match="site-3 has no signing key in this site's"):
        quick(FEDAVG, made, tmp_path / "b" / "out", Tampering(made))


def test_fewer_than_three_sites_refuse(tmp_path):
    given = secure({"name": "FedAvg", "sampled_clients": 2}, rounds=2)
    with pytest.raises(BadInput, match=r"algorithm.sampled_clients = 2: secure aggregation needs at least 3"):
        deployed(given, secure_sites(given, tmp_path), tmp_path / "out")
    two = validate_config({**FEDAVG.model_dump(mode="json"), "split": {"name": "iid", "clients": 2}})
    with pytest.raises(BadInput, match=r"sites = 2: secure aggregation needs at least 3"):
        deployed(two, secure_sites(two, tmp_path / "two"), tmp_path / "two" / "out")
    with pytest.raises(BadInput, match="needs at least 3 clients; there are 2"):
        simulated(two)


def without_masks(content):
    """The server asks for replies that are not masked."""
    told = about(content)
    if "do" in told or told["secure"] is None:
        return content
    header = json.loads(content[8 : 8 + int.from_bytes(content[4:8], "little")])
    header["about"]["secure"] = None
    text = json.dumps(header, separators=(",", ":")).encode()
    body = content[8 + int.from_bytes(content[4:8], "little") :]
    return content[:4] + len(text).to_bytes(4, "little") + text + body


def test_a_server_cannot_ask_for_less(tmp_path):
    made = secure_sites(FEDAVG, tmp_path)
    with pytest.raises(TooFewAnswered, match="says secure_aggregation = true, and the server asks for the opposite"):
        quick(FEDAVG, made, tmp_path / "out", Tampering(made, without_masks))
    plain = secure({"name": "FedAvg", "local_steps": 2}, on=False, rounds=2, evaluate_every=2)
    with pytest.raises(TooFewAnswered, match=r"this site's \[privacy\] differs"):
        quick(plain, made, tmp_path / "plain", Tampering(made))


def test_a_policy_can_ask_for_it(tmp_path):
    plain = secure({"name": "FedAvg", "local_steps": 2}, on=False, rounds=1)
    policy = SitePolicy(minimum_cell=1, minimum_rows=1, minimum_sites=1, secure_aggregation=True)
    with pytest.raises(TooFewAnswered, match="policy says secure_aggregation = true; the run has no secure"):
        quick(plain, made := sites(plain, tmp_path, policy), tmp_path / "out", Tampering(made))
    given = secure({"name": "FedAvg", "local_steps": 2}, rounds=1)
    assert deployed(given, secure_sites(given, tmp_path / "b", policy), tmp_path / "b" / "out").summary["rounds"] == 1
    (tmp_path / "site-policy.toml").write_text("secure_aggregation = true\n")
    assert read_policy(tmp_path).secure_aggregation


def is_task(content, round):
    told = about(content)
    return "do" not in told and told["round"] == round


def test_a_lost_site_and_one_that_is_lost_before_it_opens_its_masks(tmp_path):
    """Round 1 loses a reply: the sum is of three. Round 2 loses an opening: it changes nothing, and the run goes on."""
    given = secure({"name": "FedAvg", "local_steps": 2}, rounds=3, evaluate_every=3)
    made, opened, models = secure_sites(given, tmp_path), [], {}

    def arrived(arrival, content):
        if "do" not in about(content):
            kinds = records_of(made[0]._agreed_run("trial").worker.algorithm)
            models[about(content)["round"]] = unpack(content, kinds).record.w
        if is_task(content, 0) and arrival.client == 3:
            return None
        if about(content).get("do") == "unmask":
            opened.append(arrival.client)
            if len(models) == 2 and arrival.client == 1:
                return None
        return arrival

    result = quick(given, made, tmp_path / "out", transport := Tampering(made, arrived=arrived))
    asked = [c for c, _ in transport.view if about(c).get("do") == "unmask"]
    assert unpack(asked[0], {}).record["alive"] == [0, 1, 2]
    log = (tmp_path / "out" / "log.txt").read_text()
    assert "round 2: site-2 answered, but did not open their masks" in log
    assert torch.equal(models[1], models[2])
    assert not torch.equal(models[0], models[1])
    assert result.summary["rounds"] == 3
    assert not torch.equal(result.model, models[2])
    assert opened.count(1) == 1 + ATTEMPTS  # it rests in the third round


def masked_of(content, kinds):
    """What the server can see of a masked reply."""
    record = unpack(content, kinds).record
    return sum_of([record["masked"]], read_layout(record["fields"]))


def test_a_late_reply_tells_nothing_and_no_site_opens_more_for_it(tmp_path):
    """The server keeps the late reply of a site, and afterwards tries to have it opened."""
    made, late = secure_sites(FEDAVG, tmp_path), {}

    def arrived(arrival, content):
        if is_task(content, 0) and arrival.client == 3:
            late["reply"], late["ask"] = arrival.content, content
            return None
        return arrival

    quick(FEDAVG, made, tmp_path / "out", transport := Tampering(made, arrived=arrived))
    nonce = about(late["ask"])["nonce"]
    request = next(c for c, _ in transport.view if about(c).get("do") == "unmask")
    for alive, who, reason in (
        ([0, 1, 2, 3], 0, "opened for another set"),
        ([0, 1, 2], 3, "with this site in it"),
        ([1, 2, 3], 1, "opened for another set"),
    ):
        message = Message(unpack(request, {}).about, {"of": nonce, "alive": alive})
        told = unpack(made[who].answer(pack(message)), {}).about["failure"]
        assert reason in told["detail"], told
    again = SiteService(made[0].config, made[0].settings, OPEN, made[0].identity)  # after a restart, too
    message = Message(unpack(request, {}).about, {"of": nonce, "alive": [0, 1, 2, 3]})
    assert "another set" in unpack(again.answer(pack(message)), {}).about["failure"]["detail"]


def test_a_repeated_ask_gets_the_same_bytes_also_after_a_restart(tmp_path):
    made = secure_sites(FEDAVG, tmp_path)
    quick(FEDAVG, made, tmp_path / "out", transport := Tampering(made))
    content, arrival = next((c, a) for c, a in transport.view if is_task(c, 0) and a.client == 2)
    again = SiteService(made[2].config, made[2].settings, OPEN, made[2].identity)
    assert made[2].answer(content) == again.answer(content) == arrival.content
    ask, kinds = Ask.read(about(content)), records_of(made[2]._agreed_run("trial").worker.algorithm)
    sent = unpack(content, kinds).record
    other = pack(Message(ask.to_dict(), type(sent)(**{**vars(sent), "w": sent.w + 1})))  # the same nonce
    assert (
        "round 1, exchange 1 was answered before, and this is another question"
        in unpack(again.answer(other), kinds).about["failure"]["detail"]
    )
    seen = masked_of(arrival.content, kinds)
    model = again._agreed_run("trial").worker.algorithm.problem.initial()
    assert np.abs(seen[: len(model)].view(np.int64).astype(float)).min() > 2.0**50  # far from any model


def test_a_second_process_of_a_site_knows_what_the_first_one_opened(tmp_path):
    """A server that has two processes of a site started, and asks each of them to open for another set."""
    made = secure_sites(FEDAVG, tmp_path)
    second = SiteService(made[0].config, made[0].settings, OPEN, made[0].identity)
    late = {}

    def arrived(arrival, content):
        if is_task(content, 0) and arrival.client == 0 and not late:
            late["ask"] = about(content)["nonce"]
            second.answer(content)  # has read the notes before the masks were opened
        return arrival

    quick(FEDAVG, made, tmp_path / "out", transport := Tampering(made, arrived=arrived))
    request = next(c for c, _ in transport.view if about(c).get("do") == "unmask")
    message = Message(unpack(request, {}).about, {"of": late["ask"], "alive": [0, 1, 2]})
    assert "another set" in unpack(second.answer(pack(message)), {}).about["failure"]["detail"]


def test_a_run_that_is_run_again_without_a_site_has_no_second_sum_to_subtract(tmp_path):
    """The same name, the same rounds, the same models, and one site fewer: nobody opens anything."""
    made = secure_sites(FEDAVG, tmp_path)
    first = quick(FEDAVG, made, tmp_path / "out", Tampering(made))

    def arrived(arrival, content):
        return None if "do" not in about(content) and arrival.client == 3 else arrival

    with pytest.raises(TooFewAnswered, match="was answered before, and this is another question"):
        quick(FEDAVG, made, tmp_path / "again", Tampering(made, arrived=arrived))
    log = (tmp_path / "again" / "log.txt").read_text()
    assert "refused: in this exchange of this round the masks of another sum were opened" in log
    repeated = quick(FEDAVG, made, tmp_path / "same", Tampering(made))  # with all sites there is nothing to subtract
    assert torch.equal(repeated.model, first.model)


def test_a_site_without_its_notes_opens_and_masks_nothing(tmp_path):
    made = secure_sites(FEDAVG, tmp_path)
    quick(FEDAVG, made, tmp_path / "out", transport := Tampering(made))
    request = next(c for c, _ in transport.view if about(c).get("do") == "unmask")
    task = next(c for c, a in transport.view if is_task(c, 1))
    (path,) = made[0].settings.folder.rglob("secure.jsonl")
    assert path.stat().st_mode & 0o077 == 0
    path.unlink()
    for content in (request, task):
        again = SiteService(made[0].config, made[0].settings, OPEN, made[0].identity)
        assert (
            "notes of the masks that it opened are gone" in unpack(again.answer(content), {}).about["failure"]["detail"]
        )


def test_notes_outlive_a_line_that_was_cut_and_refuse_to_be_shortened(tmp_path):
    book = AnswerLogFile.new(tmp_path / "notes")
    noted = LoggedAnswer(Question(bytes(32), (0, 1, 2), (0.5, 0.25, 0.25), (4, 1)), "reply", (0, 1, 2))
    with book.locked():
        book.put("a", noted)
    (tmp_path / "notes").write_bytes((tmp_path / "notes").read_bytes() + b'{"nonce":"b","dig')
    again = AnswerLogFile(tmp_path / "notes")
    with again.locked():
        assert again.get("a") == again.opened_at((4, 1)) == noted
        assert again.get("b") is None
        again.put("c", noted)
    with book.locked():  # sees what the other one noted
        assert book.get("c") == noted
    (tmp_path / "notes").write_bytes(b"")
    with pytest.raises(Refused, match="were cut"), book.locked():
        pass


def test_keys_of_a_run_are_made_only_where_they_are_asked_for(tmp_path):
    """A site that has lost its keys must not go on with others: its old masks would not cancel."""
    with pytest.raises(Refused, match="keys of the run are gone"):
        run_keys(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    made = run_keys(tmp_path / "run", new=True)
    assert run_keys(tmp_path / "run") == run_keys(tmp_path / "run", new=True) == made


def test_two_sites_with_one_key_are_refused(tmp_path):
    """A site that signs the key of another one as its own."""
    names, identities = ["a", "b", "c"], {}
    write_site_keys({n: tmp_path / n for n in names}, names)
    told = {}
    for n in names:
        identities[n] = read_identity(tmp_path / n, n)
        told[n] = KeyTold(**tell_key(identities[n], tmp_path / n / "run", "run", names))
    assert site_secure(identities["a"], tmp_path / "a" / "run", "run", names, told).masks.me == 0
    public = bytes.fromhex(told["b"].public)
    signature = sign(identities["c"].private, "run", "c", names, public)
    told["c"] = KeyTold(public=public.hex(), signature=signature.hex())
    with pytest.raises(Refused, match="two sites have the same key"):
        site_secure(identities["a"], tmp_path / "a" / "run", "run", names, told)


def test_a_policy_asks_for_more_than_three_sites_in_a_sum(tmp_path):
    """Whatever the server says: it does not know the policy here, as it has been told another one."""
    made = secure_sites(FEDAVG, tmp_path)
    quick(FEDAVG, made, tmp_path / "out", transport := Tampering(made))
    strict = OPEN.model_copy(update={"minimum_sites": 4})
    again = SiteService(made[0].config, made[0].settings, strict, made[0].identity)
    nonce = next(about(c)["nonce"] for c, _ in transport.view if is_task(c, 1))
    request = next(c for c, _ in transport.view if about(c).get("do") == "unmask")
    message = Message(unpack(request, {}).about, {"of": nonce, "alive": [0, 1, 2]})
    told = unpack(again.answer(pack(message)), {}).about["failure"]["detail"]
    assert "a sum of 3 sites; secure aggregation needs at least 4" in told


def test_a_resumed_run_goes_on_with_the_same_keys(tmp_path):
    given = secure({"name": "Local SGDA+", "local_steps": 2, "snapshot_every": 2}, problem={"name": "class-fair"},
                   rounds=3, evaluate_every=3)  # fmt: skip
    made = secure_sites(given, tmp_path)
    shorter = validate_config(
        {**given.model_dump(mode="json"), "run": {**given.run.model_dump(mode="json"), "rounds": 2}}
    )
    for one in made.values():
        one.config = given
    deployed(shorter, made, tmp_path / "out")
    keys = (tmp_path / "out" / "keys.json").read_text()
    restarted = {i: SiteService(given, one.settings, OPEN, one.identity) for i, one in made.items()}
    found = deployed(given, restarted, tmp_path / "out")
    assert torch.equal(found.model, simulated(given).model)
    assert (tmp_path / "out" / "keys.json").read_text() == keys
    for path in tmp_path.rglob("secure.key"):
        path.unlink()
    gone = {i: SiteService(given, one.settings, OPEN, one.identity) for i, one in made.items()}
    (tmp_path / "out" / "summary.json").unlink()
    with pytest.raises(TooFewAnswered, match="keys of the run are gone"):
        quick(given, gone, tmp_path / "out", Tampering(gone))


def test_a_site_with_nan_says_so_and_masks_nothing(tmp_path):
    made, asked = secure_sites(FEDAVG, tmp_path), []

    def break_site(content):
        if is_task(content, 1) and not asked:
            asked.append(made[1]._agreed_run("trial").worker)
            asked[0].rows.own.x.fill_(float("nan"))
        return content

    result = quick(FEDAVG, made, tmp_path / "out", Tampering(made, break_site))
    left_out = result.summary["sites"]["site-2"]["left_out"]
    assert any("'final' that is not finite" in reason for reason in left_out), left_out
    assert torch.isfinite(result.model).all()


@pytest.mark.parametrize(
    ("robust", "key"), [({"aggregation": "median"}, "robust.aggregation"), ({"bounds": True}, "robust.bounds")]
)
def test_what_must_see_each_reply_is_refused(robust, key):
    stored = FEDAVG.model_dump(mode="json")
    with pytest.raises(BadInput, match=rf"{key} = .*has to see each reply, which secure aggregation hides"):
        validate_config({**stored, "robust": robust})


def test_a_reply_that_is_not_masked_is_left_out(tmp_path):
    made = secure_sites(FEDAVG, tmp_path)

    def arrived(arrival, content):
        if not is_task(content, 0) or arrival.client != 2:
            return arrival
        worker = made[2]._agreed_run("trial").worker
        sent = unpack(content, worker.kinds).record
        reply = worker._run(Ask.read(about(content)), sent).record
        assert layout_of(reply)
        return Arrival(2, pack(Message(unpack(arrival.content, {}).about, reply)))

    result = quick(FEDAVG, made, tmp_path / "out", Tampering(made, arrived=arrived))
    assert any("are not masked" in reason for reason in result.summary["sites"]["site-3"]["left_out"])


def test_wrong_masks_are_noticed(tmp_path):
    """A site that sends noise in place of its mask: the weight of the sum is wrong, and the round changes nothing."""
    made = secure_sites(FEDAVG, tmp_path)

    def arrived(arrival, content):
        if not is_task(content, 0) or arrival.client != 2:
            return arrival
        kinds = made[2]._agreed_run("trial").worker.kinds
        message = unpack(arrival.content, kinds)
        return Arrival(2, pack(Message(message.about, {**message.record, "masked": message.record["masked"] ^ 85})))

    quick(FEDAVG, made, tmp_path / "out", Tampering(made, arrived=arrived))
    assert "round 1: the masks of this exchange do not cancel" in (tmp_path / "out" / "log.txt").read_text()


def test_a_damaged_key_makes_a_site_refuse(tmp_path):
    write_site_keys({"a": tmp_path / "a", "b": tmp_path / "b"}, ["a", "b"])
    (tmp_path / "a" / SIGNING_KEY).write_bytes(b"short")
    with pytest.raises(BadInput, match="is damaged"):
        write_site_keys({"a": tmp_path / "a", "b": tmp_path / "b"}, ["a", "b"])
    assert read_identity(tmp_path / "none", "a") is None


def test_python_runs_refuse_robust_settings(tmp_path):
    import fedsaddle as fs

    data = fs.load("iris", split="iid", clients=4)
    algorithm = fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3)))
    with pytest.raises(BadInput, match="which secure aggregation hides"):
        run(algorithm, data, 1, privacy=fs.Privacy(secure_aggregation=True), robust=fs.Robust(bounds=True))
    assert issubclass(Refused, Exception)
