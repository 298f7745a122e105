"""Pure rules: records, verdict, signature, reduction, redaction. No I/O, no clock, standard library only."""
