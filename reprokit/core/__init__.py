"""Pure rules: records, verdict, signature, redaction. No I/O, no clock, standard library only."""
