"""Where a run is shown beside metrics.jsonl: TensorBoard, wandb, trackio, your own.

`base` has the protocol, `background` what keeps a tracker level with metrics.jsonl
without holding up the run, `state` what a workdir keeps of it. The libraries are
extras, imported by the tracker that is named.
"""
