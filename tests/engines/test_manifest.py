"""The example for Kubernetes: a command that there is, and pods that fit to it and to each other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from dprl.cli import app

ROOT = Path(__file__).parents[2]
KINDS = {
    each["kind"]: each for each in yaml.safe_load_all((ROOT / "examples/kubernetes/evaluate.yaml").read_text("utf-8"))
}
JOB = KINDS["RayJob"]["spec"]
CLUSTER = JOB["rayClusterSpec"]
HEAD, (WORKERS,) = CLUSTER["headGroupSpec"], CLUSTER["workerGroupSpecs"]


def pod(group):
    """The pod of a group, and its container."""
    (container,) = group["template"]["spec"]["containers"]
    return group["template"]["spec"], container


def mounts(group):
    """What lies at which path in the pods of a group."""
    spec, container = pod(group)
    volumes = {each["name"]: {k: v for k, v in each.items() if k != "name"} for each in spec["volumes"]}
    return {Path(each["mountPath"]): volumes[each["name"]] for each in container["volumeMounts"]}


def asked(folder, interrupted):
    """The options with which the job's script calls dprl, where a release was interrupted or not."""
    said = folder / "said"
    (folder / "dprl").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {said}\n')
    (folder / "dprl").chmod(0o755)
    if interrupted:
        (folder / "results.run").mkdir()
    script = KINDS["ConfigMap"]["data"][Path(JOB["entrypoint"].split()[1]).name]
    here = script.replace("test -e /releases", f"test -e {folder}")
    assert here != script
    subprocess.run(["sh", "-eu", "-c", here], env={"PATH": f"{folder}:/usr/bin:/bin"}, check=True)
    name, *arguments = said.read_text().splitlines()
    command: Any = typer.main.get_command(app)
    return command.get_command(None, name).make_context(name, arguments).params


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_command_is_one_of_dprl(tmp_path, interrupted):
    options = asked(tmp_path, interrupted)
    assert options["resume"] is interrupted
    assert (options["engine"], options["address"]) == ("ray", "auto")
    # no processor of the driver's machine, and all of the others
    assert HEAD["rayStartParams"]["num-cpus"] == "0"
    assert options["shards"] == int(WORKERS["rayStartParams"]["num-cpus"]) * WORKERS["replicas"]
    head, workers = mounts(HEAD), mounts(WORKERS)
    for name in ("log", "bounds"):
        assert options[name].parent in workers
    (policy,) = options["target_policy"]
    assert Path(policy.partition(":")[0]).parent in workers
    # the same at the same paths; budget, noise and results lie where no worker sees them
    assert all(head[path] == workers[path] for path in workers)
    assert all(volume["persistentVolumeClaim"]["readOnly"] for volume in workers.values())
    for name in ("ledger", "out"):
        assert options[name].parent in head
        assert options[name].parent not in workers
        assert "readOnly" not in head[options[name].parent]["persistentVolumeClaim"]


def test_the_script_is_in_the_head():
    shell, path = JOB["entrypoint"].split()  # KubeRay gives it to a shell of its own first
    assert (shell, Path(path).name) == ("sh", *KINDS["ConfigMap"]["data"])
    assert mounts(HEAD)[Path(path).parent] == {"configMap": {"name": KINDS["ConfigMap"]["metadata"]["name"]}}


def test_the_pods_are_alike():
    (head, driver), (workers, worker) = pod(HEAD), pod(WORKERS)
    assert (driver["image"], driver["env"], head["nodeSelector"]) == (
        worker["image"], worker["env"], workers["nodeSelector"],
    )  # fmt: skip
    for group in (HEAD, WORKERS):
        resources = pod(group)[1]["resources"]
        assert resources["requests"] == resources["limits"]  # guaranteed: not the first to be evicted
        assert int(group["rayStartParams"]["num-cpus"]) <= int(resources["limits"]["cpu"])
    assert WORKERS["replicas"] == WORKERS["minReplicas"] == WORKERS["maxReplicas"]
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert CLUSTER["rayVersion"] == pinned[1]
    assert f"rayproject/ray:{pinned[1]}-" in (ROOT / "examples/kubernetes/evaluate.yaml").read_text()


def test_nobody_else_is_let_in():
    policy, job = KINDS["NetworkPolicy"]["spec"], KINDS["RayJob"]["metadata"]["name"]
    own = policy["podSelector"]["matchLabels"]
    for group in (HEAD, WORKERS):
        assert own.items() <= group["template"]["metadata"]["labels"].items()
    among, others = policy["ingress"]
    assert among == {"from": [{"podSelector": {"matchLabels": own}}]}
    # KubeRay's operator asks the dashboard whether the job is done; without it the cluster would stay for ever
    assert others["ports"] == [{"protocol": "TCP", "port": 8265}]
    submitter, operator = others["from"]
    assert submitter == {"podSelector": {"matchLabels": {"batch.kubernetes.io/job-name": job}}}
    assert operator.keys() == {"podSelector", "namespaceSelector"}
    assert CLUSTER["authOptions"] == {"mode": "token"}
