"""The scripts for clusters in the documentation, which are not run here: a RayJob's fields, and options of a run.

The fields are those of KubeRay's types `RayJobSpec`, `RayClusterSpec`, `HeadGroupSpec` and `WorkerGroupSpec`, v1.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from fedsaddle.commands.run import run

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
JOB = {"entrypoint", "shutdownAfterJobFinishes", "rayClusterSpec", "ttlSecondsAfterFinished", "runtimeEnvYAML"}
CLUSTER = {"headGroupSpec", "workerGroupSpecs", "rayVersion", "enableInTreeAutoscaling"}
HEAD_NEEDS = {"rayStartParams", "template"}
GROUP_NEEDS = {"groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def options_of(command):
    """The options of `fedsaddle run` in a line of a script, after checking that there are such."""
    words = shlex.split(command)
    assert words[:2] == ["fedsaddle", "run"]
    known = set(re.findall(r"--[a-z-]+", str(run.__annotations__)))
    known |= {f"--{name.replace('_', '-')}" for name in run.__annotations__}
    given = [word for word in words if word.startswith("--")]
    assert set(given) <= known
    return words


def test_the_job_of_kuberay_has_the_fields_of_a_ray_job():
    (text,) = blocks("yaml")
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["metadata"]["name"]
    spec = job["spec"]
    assert spec.keys() <= JOB
    cluster = spec["rayClusterSpec"]
    assert cluster.keys() <= CLUSTER
    head, groups = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert head.keys() == HEAD_NEEDS
    for group in groups:
        assert group.keys() == {*GROUP_NEEDS, "replicas"}
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for pods in (head, *groups):
        assert all(isinstance(value, str) for value in pods["rayStartParams"].values())
        pod = pods["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["image"]
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    limits = groups[0]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert int(limits["nvidia.com/gpu"]) > 0
    assert {"--engine", "ray", "--device", "cuda"} <= {*options_of(spec["entrypoint"])}


def test_the_script_of_slurm_is_a_script():
    (text,) = [block for block in blocks("sh") if "#SBATCH" in block]
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False, capture_output=True).returncode == 0
    (gpus,) = re.findall(r"--gpus-per-node=(\d+)", text)
    assert re.findall(r"--num-gpus=(\d+)", text) == [gpus, gpus]
    (last,) = [line for line in text.splitlines() if line.startswith("fedsaddle")]
    assert {"--engine", "ray", "--device", "cuda"} <= {*options_of(last)}


def test_options_that_do_not_exist_are_found():
    with pytest.raises(AssertionError):
        options_of("fedsaddle run c.toml --devise cuda")
