"""From claimed spans to batches: reading, decoding, collating, transforming."""
