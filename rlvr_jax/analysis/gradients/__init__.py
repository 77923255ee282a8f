"""Whether token weights turn a batch's gradient toward the gradient of many batches."""
