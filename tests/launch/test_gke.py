"""GKE: the manifest is a JobSet that restarts jobs that can resume."""

import yaml

from tests.support.launchers import GKE, LAUNCH, RUN, launch

_ALPHA = "alpha.jobset.sigs.k8s.io"


def test_a_workdir_in_a_bucket_needs_no_share():
    flags = ("--claim=", "--workdir=gs://b/run")
    made = yaml.safe_load(launch("gke.sh", *GKE, *flags).stdout)
    (replicated,) = made["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    assert "volumes" not in pod
    assert not {"volumeMounts", "env"} & pod["containers"][0].keys()
    assert pod["containers"][0]["args"][-1] == "--workdir=gs://b/run"
    assert pod["containers"][0]["ports"]


def _security(*flags):
    made = yaml.safe_load(launch("gke.sh", *GKE, *flags).stdout)
    (replicated,) = made["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    return pod["securityContext"], pod["containers"][0]["securityContext"]


def test_pods_run_as_the_images_user_unless_root_is_requested():
    image = (LAUNCH / "Dockerfile").read_text()
    assert "useradd --uid=1000 --create-home rlvr\nUSER rlvr\n" in image
    ids = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
    no_more = {"allowPrivilegeEscalation": False}
    assert _security() == ({"runAsNonRoot": True, **ids}, no_more)
    assert _security("--root") == ({"runAsUser": 0}, no_more)


def test_the_manifest_is_a_jobset_with_its_two_ways_to_fail():
    args = ("--spot", "--restarts=7", r'--config.name=a "b\c')
    made = yaml.safe_load(launch("gke.sh", *GKE, *args).stdout)
    assert made.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert made["metadata"] == {
        "name": "r",
        "annotations": {
            f"{_ALPHA}/exclusive-topology": "cloud.google.com/gke-nodepool"
        },
    }
    # Exit code 2 fails the Job by its pods' policy, and that reason fails the JobSet.
    # Other failures exceed the Job's backoffLimit of 0, which has no rule: a restart.
    assert made["spec"]["failurePolicy"] == {
        "maxRestarts": 7,
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "unusable",
                "action": "FailJobSet",
                "onJobFailureReasons": ["PodFailurePolicy"],
            }
        ],
    }
    (replicated,) = made["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (replicated["name"], replicated["replicas"]) == ("host", 1)
    assert (job["completionMode"], job["backoffLimit"]) == ("Indexed", 0)
    exit_codes = {"containerName": "run", "operator": "In", "values": [2]}
    assert job["podFailurePolicy"] == {
        "rules": [{"action": "FailJob", "onExitCodes": exit_codes}]
    }
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    # A pod failure policy demands that pods are never restarted in place.
    assert pod["restartPolicy"] == "Never"
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert (container["name"], container["image"]) == ("run", "i:1")
    assert container["command"] == ["python", "-m", "rlvr_jax.main"]
    assert container["args"] == [*RUN, args[-1]]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    (volume,) = pod["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "c"}
    assert container["volumeMounts"] == [
        {"name": volume["name"], "mountPath": "/mnt/share"}
    ]
