#!/usr/bin/env bash
# bash launch/gke.sh --name=N --image=IMAGE --topology=v5e:4x4
#     [--claim=CLAIM] [--spot] [--root] [--restarts=20]
#     --config=FILE --workdir=gs://BUCKET/RUN|/mnt/share/DIR [--config.a.b=v ...] [--stage=S]
#     | kubectl apply --filename=-
#
# Prints the JobSet that runs the command on a TPU slice of a GKE cluster, with one pod
# per host. If one pod ends early, all of them restart, and the run continues from its
# checkpoint. Exit code 2 (the command cannot run) fails the job at once.
#
#   --image    the image of launch/Dockerfile, pushed where the cluster can pull it
#   --claim    a PersistentVolumeClaim, ReadWriteMany, mounted at /mnt/share; needed
#              unless the workdir is on gs://, which the pods' account must then write
#   --spot     use nodes that cost less and may be preempted at any time
#   --root     run as root; only needed if the nodes give TPUs to nobody else. Otherwise
#              nodes need containerd's device_ownership_from_security_context
#   --restarts how often all pods may restart
#
# The cluster needs the JobSet controller and the node pool that the first line names.
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

name="" image="" topology="" claim="" spot="" root="" restarts=20
while (($#)); do
  case "$1" in
    --help) usage && exit ;;
    --name=*) name="${1#*=}" ;;
    --image=*) image="${1#*=}" ;;
    --topology=*) topology="${1#*=}" ;;
    --claim=*) claim="${1#*=}" ;;
    --restarts=*) restarts="${1#*=}" ;;
    --spot) spot=1 ;;
    --root) root=1 ;;
    *) keep_flag "$1" ;;
  esac
  shift
done
needed "$name" --name=NAME
needed "$image" --image=IMAGE
needed "$topology" --topology=v5e:4x4
check_name "$name"
check_count --restarts "$restarts"
slice "$topology"
check_run
in_bucket || needed "$claim" --claim=CLAIM
check_outlives

# Prints one word as a YAML string on its own line.
yaml() {
  local word="${1//\\/\\\\}"
  echo "\"${word//\"/\\\"}\""
}

cat <<EOF_HEAD
# $topology: a node pool of $hosts x $machine, topology $shape
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $name
  annotations:
    # All pods on one slice, and no other job's beside them.
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  failurePolicy:
    maxRestarts: $restarts
    # No pod writes to the workdir while another of an earlier attempt still does.
    restartStrategy: BlockingRecreate
    rules:
      - name: unusable
        action: FailJobSet
        onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
    - name: host
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          completions: $hosts
          parallelism: $hosts
          # One pod that ends early (75, 1, a lost node) ends the attempt of all.
          backoffLimit: 0
          podFailurePolicy:
            rules:
              - action: FailJob
                onExitCodes:
                  containerName: run
                  operator: In
                  values: [2]
          template:
            spec:
              restartPolicy: Never
              # From SIGTERM to the end of the checkpoint.
              terminationGracePeriodSeconds: 120
              nodeSelector:
                cloud.google.com/gke-tpu-accelerator: $gke_accelerator
                cloud.google.com/gke-tpu-topology: $shape
EOF_HEAD
[[ -z "$spot" ]] || echo '                cloud.google.com/gke-spot: "true"'
if [[ -n "$root" ]]; then
  echo "              securityContext: {runAsUser: 0}"
else
  cat <<EOF_USER
              securityContext:
                runAsNonRoot: true
                runAsUser: 1000 # rlvr of launch/Dockerfile
                runAsGroup: 1000
                fsGroup: 1000
EOF_USER
fi
cat <<EOF_POD
              containers:
                - name: run
                  image: $(yaml "$image")
                  securityContext: {allowPrivilegeEscalation: false}
                  command: [python, -m, rlvr_jax.main]
                  args:
EOF_POD
for word in "${run[@]}"; do
  echo "                    - $(yaml "$word")"
done
[[ -z "$claim" ]] || cat <<EOF_CACHE
                  env:
                    - name: JAX_COMPILATION_CACHE_DIR
                      value: $SHARE/.jax_cache
EOF_CACHE
cat <<EOF_PORTS
                  ports:
                    - containerPort: 8471 # libtpu's
                    - containerPort: 8482 # JAX's coordinator
                  resources:
                    requests:
                      google.com/tpu: $host_chips
                    limits:
                      google.com/tpu: $host_chips
EOF_PORTS
[[ -z "$claim" ]] || cat <<EOF_SHARE
                  volumeMounts:
                    - name: share
                      mountPath: $SHARE
              volumes:
                - name: share
                  persistentVolumeClaim:
                    claimName: $(yaml "$claim")
EOF_SHARE
