"""Whether repros are small, fail in the same way, and survive redaction."""
