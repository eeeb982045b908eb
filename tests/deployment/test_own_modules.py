"""Own code at sites: nothing is imported that the policy does not list with its digest."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from in_process import OPEN, config, deployed, simulated, sites

from fedsaddle import own_code
from fedsaddle.commands.deploy import digest
from fedsaddle.config.registry import ALGORITHMS, MODELS, entry
from fedsaddle.deployment.agreement import digests
from fedsaddle.deployment.messages import Answer, Request
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.deployment.site_policy import SitePolicy, named_code
from fedsaddle.errors import BadInput, FedSaddleError, Refused
from fedsaddle.federation.wire import Message, pack, unpack
from fedsaddle.own_code import Plugin, digest_of, only_modules

ALGORITHM = '''
import sys
from dataclasses import dataclass
from pathlib import Path

import fedsaddle as fs
from site_pkg.inside import FACTOR

Path(__file__).with_name("imported").write_text("yes")


@dataclass(frozen=True, kw_only=True)
class Mine(fs.FedAvg):
    """FedAvg under another name."""

    pull: float = FACTOR
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with one algorithm, which leaves a file when it is imported."""
    home = tmp_path / "installed" / "site_pkg"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "inside.py").write_text("FACTOR = 0.5\n")
    (home / "mine.py").write_text(ALGORITHM)
    monkeypatch.syspath_prepend(str(home.parent))
    monkeypatch.setattr(own_code, "_FOLDERS", [])
    yield home
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "site_pkg"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    own_code.forget()


MINE = {"name": "site_pkg.mine:Mine", "local_steps": 2}


def policy(**modules: str) -> SitePolicy:
    return OPEN.model_copy(update={"modules": {name.replace("__", "."): value for name, value in modules.items()}})


def ask(site: SiteService, do: str, payload: dict) -> str:
    request = Request(do=do, run="trial", fingerprint="", nonce="n")
    answer = Answer.read(unpack(site.answer(pack(Message(request.to_dict(), payload))), {}).about)
    return "" if answer.failure is None else answer.failure.detail


def alone(given, tmp_path: Path, rules: SitePolicy) -> SiteService:
    return SiteService(given, SiteSettings("site-1", tmp_path / "rows.npz", tmp_path / "disk"), rules)


def asked(given) -> dict:
    return {"config": digests(given), "names": ["site-1", "site-2"]}


@pytest.mark.parametrize("listed", ["site_pkg", "site_pkg__mine"])
def test_a_run_with_listed_code_has_the_bits_of_the_simulation(package, tmp_path, listed):
    given = config(MINE, rounds=2)
    made = sites(given, tmp_path, policy(**{listed: digest_of("site_pkg.mine")}))
    found = deployed(given, made, tmp_path / "out")
    assert found.model.equal(simulated(given).model)
    assert (tmp_path / "out" / "code.json").is_file()


def test_code_that_is_not_listed_is_refused_before_it_is_imported(package, tmp_path):
    given = config(MINE)
    here = digest_of("site_pkg")
    for rules in (OPEN, policy(site_pkg__other=here), policy(site_pk=here)):
        for do in ("facts", "counts", "agree"):
            payload = asked(given) if do != "counts" else {"config": digests(given), "drafts": []}
            said = ask(alone(given, tmp_path, rules), do, payload)
            if do != "agree":  # whose payload is not whole
                assert said == f"this site's policy does not list 'site_pkg.mine' under [modules]; here it has {here}"
    assert not (package / "imported").exists()
    assert "site_pkg" not in sys.modules


@pytest.mark.parametrize("file", ["mine.py", "inside.py", "__init__.py", "new.py"])
def test_code_that_has_changed_is_refused_before_it_is_imported(package, tmp_path, file):
    rules, given = policy(site_pkg=digest_of("site_pkg")), config(MINE)
    assert ask(alone(given, tmp_path, rules), "facts", asked(given)).startswith("cannot read its data file")
    forget()
    (package / "imported").unlink()
    with (package / file).open("a") as out:
        out.write("# another line\n")
    said = ask(alone(given, tmp_path, rules), "facts", asked(given))
    expected = "this site's policy lists 'site_pkg' under [modules] with another digest; here it has "
    assert said == expected + digest_of("site_pkg.mine")
    assert not (package / "imported").exists()


def test_a_site_that_starts_again_looks_again(package, tmp_path):
    given = config(MINE, rounds=1)
    made = sites(given, tmp_path, policy(site_pkg=digest_of("site_pkg")))
    deployed(given, made, tmp_path / "out")
    forget()
    (package / "imported").unlink()
    (package / "inside.py").write_text("FACTOR = 0.25\n")
    before = made[0]
    again = SiteService(before.config, before.settings, before.policy)  # agreed.json lies on its disk
    with pytest.raises(FedSaddleError), only_modules(again.policy.modules):
        again._agreed_run("trial")
    assert not (package / "imported").exists()


HOSTILE = [
    "os:system", "subprocess:Popen", "builtins:exec", "fedsaddle.errors:BadInput", "fedsaddle:run", "..:x",
    "..os:system",
    "site_pkg.mine:Mine.__init__", "site_pkg.mine:__builtins__", "site_pkg.mine:sys.modules", "site_pkg/mine:Mine",
    "site_pkg.mine:Mine\n", "\x00:x", "a" * 5000 + ":x", "site_pkg..mine:Mine", ".site_pkg:Mine", "site_pkg.:Mine",
    "sіte_pkg.mine:Mine", "site_pkg.mine: Mine", "__main__:x", "torch.hub:load", ":", "::",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=[ascii(name)[:40] for name in HOSTILE])
@pytest.mark.parametrize("section", ["algorithm", "model"])
def test_hostile_names_in_a_sites_config(package, tmp_path, name, section):
    given = config(MINE)
    given = given.model_copy(update={section: getattr(given, section).model_copy(update={"name": name})})
    known = set(sys.modules)
    said = ask(
        alone(given, tmp_path, policy(site_pkg__other=digest_of("site_pkg"))), "facts", {"config": {}, "names": []}
    )
    assert said.startswith(("this site's config has ", "this site's policy does not list "))
    assert len(said.splitlines()) == 1
    assert {module.partition(".")[0] for module in set(sys.modules) - known} <= {"fedsaddle"}
    with pytest.raises((BadInput, Refused)), only_modules({}):
        entry(ALGORITHMS if section == "algorithm" else MODELS, "name", name)


@pytest.mark.parametrize(
    "config_of_run", [{"modules": "site_pkg.mine:Mine"}, {"algorithm": "os:system"}, ["os:system"], "os:system"]
)
def test_nothing_in_a_message_names_code(package, tmp_path, config_of_run):
    given = config({"name": "FedAvg"})
    known = set(sys.modules)
    for do in ("facts", "agree", "counts", "os:system"):
        payload = {"config": config_of_run, "names": ["site-1"], "modules": {"os": "system"}}
        assert ask(alone(given, tmp_path, OPEN), do, payload) or do == "agree"
    assert not {module for module in set(sys.modules) - known if not module.startswith("fedsaddle")}


def test_names_of_entry_points_are_gated_too(package, tmp_path, monkeypatch):
    point = Plugin("Mine", "site_pkg.mine:Mine", "site-pkg 1.0")
    for place in ("fedsaddle.own_code.plugins_of", "fedsaddle.config.registry.plugins_of"):
        monkeypatch.setattr(place, lambda group: (point,) if group == "algorithms" else ())
    given = config({"name": "Mine"})
    assert [code.module for code in named_code(given)] == ["site_pkg.mine"]
    said = ask(alone(given, tmp_path, OPEN), "facts", {"config": {}, "names": []})
    assert said.startswith("this site's policy does not list 'site_pkg.mine' under [modules]; here it has sha256:")
    assert not (package / "imported").exists()
    assert SitePolicy(algorithms=["Mine", "FedAvg", "other.pkg:Alg"]).algorithms == ["Mine", "FedAvg", "other.pkg:Alg"]
    assert not (package / "imported").exists(), "a policy that names it imports nothing"


def test_all_code_that_a_config_names_is_found():
    given = config(
        {"name": "a.alg:A", "regulariser": {"name": "b:R", "of": {"name": "c:D"}}, "primal_step": {"name": "power"}},
        problem={"name": "d:P", "loss": "e:L", "risk": "f:K"},
        measures=["g:M", {"name": "h:M"}, "duality_gap"],
    )
    assert {code.package for code in named_code(given)} == set("abcdefgh")
    assert named_code(config({"name": "FedAvg"}, problem={"loss": "cross-entropy"})) == []


def test_a_server_with_a_policy_keeps_to_it(package, tmp_path):
    given = config(MINE, rounds=1)
    with (
        only_modules({}, "the server's policy"),
        pytest.raises(
            Refused, match=r"^the server's policy does not list 'site_pkg.mine' under \[modules\]; here it has"
        ),
    ):
        deployed(given, {0: alone(given, tmp_path, OPEN)}, tmp_path / "out")
    assert not (package / "imported").exists()
    assert not (tmp_path / "out").exists()


def test_other_code_at_the_server_is_told(package, tmp_path):
    given = config(MINE)
    theirs = digests(given)
    (package / "inside.py").write_text("FACTOR = 0.75\n")
    site = alone(given, tmp_path, policy(site_pkg=digest_of("site_pkg")))
    said = ask(site, "facts", {"config": theirs, "names": ["site-1"]})
    assert said == "this site's [modules] differs from the run's; use the same config at both"
    assert "modules" not in digests(config({"name": "FedAvg"}))


def test_the_digest_is_that_of_sha256sum(package, tmp_path, capsys):
    import hashlib

    files = sorted(package.glob("*.py"), key=lambda path: path.name)
    text = "".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  site_pkg/{f.name}\n" for f in files)
    expected = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    (package / "notes.txt").write_text("no code")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "mine.cpython-311.pyc").write_bytes(b"x")
    assert digest_of("site_pkg.mine") == digest_of("site_pkg") == expected
    digest(["site_pkg.mine:Mine", "site_pkg"])
    assert capsys.readouterr().out == f'[modules]\n"site_pkg.mine" = "{expected}"\n"site_pkg" = "{expected}"\n'
    assert not (package / "imported").exists()
    for wrong, remedy in {
        "no/module": "write the name of",
        "fedsaddle.cli": "is the library",
        "nobody_has": "there is no",
    }.items():
        with pytest.raises(BadInput, match=remedy):
            digest([wrong])
    (package / "link").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="symbolic link"):
        digest_of("site_pkg")


def test_a_package_in_an_archive_has_no_digest(tmp_path, monkeypatch):
    with ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed_pkg/__init__.py", "raise SystemExit")
        archive.writestr("packed_one.py", "raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    (tmp_path / "empty_pkg").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("packed_pkg", "packed_one", "empty_pkg"):
        with pytest.raises(BadInput, match="so it has no digest; install it unpacked"):
            digest_of(name)


def test_what_lies_in_pycache_is_not_believed(package, tmp_path):
    import importlib.util
    import marshal

    source = (package / "inside.py").read_bytes()
    cached = Path(importlib.util.cache_from_source(str(package / "inside.py")))
    cached.parent.mkdir()
    flags, digest_bytes = (
        (1).to_bytes(4, "little"),
        importlib.util.source_hash(source),
    )  # never compared with the source
    code = marshal.dumps(compile("FACTOR = 666.0", "inside.py", "exec"))
    cached.write_bytes(importlib.util.MAGIC_NUMBER + flags + digest_bytes + code)
    with only_modules({"site_pkg": digest_of("site_pkg")}):
        assert entry(ALGORITHMS, "name", "site_pkg.mine:Mine").load().pull == 0.5
    forget()
    assert entry(ALGORITHMS, "name", "site_pkg.mine:Mine").load().pull == 666.0, "as Python has it elsewhere"
