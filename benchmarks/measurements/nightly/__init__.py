"""Nightly runs: throughput, the ledger, and the grouping of sightings."""
