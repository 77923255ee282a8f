"""Launchers: help, refusals, known slices."""

import re

import pytest
import yaml

from tests.support.launchers import GKE, LAUNCH, ROOT, RUN, SLICE, TPU, launch, script


@pytest.mark.parametrize("name", ["gke.sh", "slurm.sh", "tpu_vm.sh", "tpu_worker.sh"])
def test_help_names_every_flag_that_is_read(name):
    done = launch(name, "--help")
    read = re.findall(r"^    (--\w+)", (LAUNCH / name).read_text(), re.MULTILINE)
    assert len(read) > 2
    assert done.returncode == 0
    assert [flag for flag in read if flag not in done.stdout + "--help"] == []


def test_the_quickstart_explains_itself_before_it_installs(stage):
    done = launch("quickstart.sh", "--help")
    assert done.returncode == 0
    assert "runs a small full pipeline" in done.stdout


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("quickstart.sh", ("--stage", "sft"), "'sft' is not a flag; write --NAME=VAL"),
        ("tpu_vm.sh", (*TPU, "--print", "--zon=z"), "unknown flag '--zon=z'"),
        ("tpu_vm.sh", (*TPU, "--print", "x"), "unknown flag 'x'"),
        ("tpu_vm.sh", (*TPU, "--print", "--workdir", "d"), "write --workdir=VALUE"),
        ("tpu_vm.sh", (*TPU, "--print", "--zone="), "--zone=ZONE is missing"),
        ("tpu_vm.sh", (*TPU, "--print", "--name=A_b"), "--name=A_b is invalid"),
        ("tpu_vm.sh", (*TPU, "--print", f"--name={'a' * 41}"), "at most 40"),
        ("tpu_vm.sh", (*TPU, "--print", "--nfs=gs://b"), "write HOST:/DIR"),
        ("tpu_vm.sh", (*TPU, "--print", "--nfs="), "--nfs= is not a share"),
        ("tpu_vm.sh", (*TPU, "--print", "--workdir=runs/x"), "under /mnt/share"),
        ("tpu_vm.sh", (*TPU, "--print", "--workdir=s3://b/x"), "or gs://BUCKET/RUN"),
        ("tpu_vm.sh", (*TPU, "--print", "--workdir=gs://b"), "or gs://BUCKET/RUN"),
        ("tpu_vm.sh", (*TPU, "--print", "--restarts=-1"), "is not a whole number"),
        ("tpu_vm.sh", (*TPU, "--print", "--topology=v5e:3x4"), "shapes are 1x1 2x2"),
        ("tpu_vm.sh", (*TPU, "--print", "--topology=v5p:4x4"), "three sides"),
        ("tpu_vm.sh", (*TPU, "--print", "--topology=v5p:1x1x2"), "of 4 chips"),
        ("tpu_vm.sh", (*TPU, "--print", "--topology=v9:4x4"), "v4, v5e, v5p or v6e"),
        ("tpu_vm.sh", TPU, "gcloud is not on the PATH"),
        ("tpu_vm.sh", (*SLICE, "--print", "--topology=v5e:4x4"), "--config=FILE is"),
        ("tpu_worker.sh", RUN, "--attempt=ID is missing"),
        ("gke.sh", GKE[1:], "--name=NAME is missing"),
        ("gke.sh", (*GKE, "--claim="), "--claim=CLAIM is missing"),
        ("gke.sh", (*GKE, "--workdir=runs/x"), "under /mnt/share"),
        ("gke.sh", (*GKE, "--topology=v4:2x2"), "three sides"),
        ("gke.sh", (*GKE, "--bucket=b"), "unknown flag '--bucket=b'"),
        ("slurm.sh", ("--print", "--workdir=d"), "--config=FILE is missing"),
        ("slurm.sh", ("--print", "--config=f"), "--workdir=DIR is missing"),
        ("slurm.sh", RUN, "not a Slurm job"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(name, args, said, stage):
    done = launch(name, *args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert said in done.stderr


def test_a_recipe_that_is_not_committed_is_refused(stage):
    script(stage, "git.cat-file", "exit 128", "exit 128")  # a file, a recipe's name
    done = launch("tpu_vm.sh", *TPU, "--print")
    assert done.returncode == 2
    assert "--config=configs/smoke.py is not in the last commit" in done.stderr


# Chips on a host: v5e and v6e up to 8 on one host, else 4; v4 and v5p always 4. Cloud
# TPU counts v5e and v6e in chips and v5p in cores, and takes a shape for v4.
@pytest.mark.parametrize(
    ("topology", "hosts", "chips", "accelerator", "asked", "runtime"),
    [
        ("v5e:1x1", 1, 1, "v5-lite-podslice", "v5litepod-1", "tpuv5-lite"),
        ("v5e:2x4", 1, 8, "v5-lite-podslice", "v5litepod-8", "tpuv5-lite"),
        ("v5e:4x4", 4, 4, "v5-lite-podslice", "v5litepod-16", "tpuv5-lite"),
        ("v5e:16x16", 64, 4, "v5-lite-podslice", "v5litepod-256", "tpuv5-lite"),
        ("v6e:4x8", 8, 4, "v6e-slice", "v6e-32", "tpuv6e"),
        ("v5p:2x4x4", 8, 4, "v5p-slice", "v5p-64", "tpuv5"),
        ("v4:2x2x1", 1, 4, "v4-podslice", "v4 --topology=2x2x1", "ubuntu2204-base"),
    ],
)
def test_both_clouds_get_the_hosts_and_chips_of_the_slice(
    topology, hosts, chips, accelerator, asked, runtime, stage
):
    made = launch("gke.sh", *GKE, f"--topology={topology}").stdout
    job = yaml.safe_load(made)["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    assert (job["completions"], job["parallelism"]) == (hosts, hosts)
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": chips}
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": f"tpu-{accelerator}",
        "cloud.google.com/gke-tpu-topology": topology.split(":")[1],
    }
    assert made.startswith(f"# {topology}: a node pool of {hosts} x ct")
    printed = launch("tpu_vm.sh", *TPU, f"--topology={topology}", "--print").stdout
    assert f"-type={asked} --runtime-version=" in printed
    assert f"-{runtime} --project=p" in printed


def test_the_image_copies_existing_files():
    lines = (LAUNCH / "Dockerfile").read_text().splitlines()
    copied = [
        name for line in lines if line[:4] == "COPY" for name in line.split()[1:-1]
    ]
    assert len(copied) > 3
    assert [name for name in copied if not (ROOT / name).exists()] == []
