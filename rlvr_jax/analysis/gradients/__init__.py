"""Whether token weights turn a batch's gradient towards that of many batches."""
