"""Programs as texts: what a reduction cuts out of graphs and sources, and the passes that make it smaller."""
