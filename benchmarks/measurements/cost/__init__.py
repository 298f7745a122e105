"""What reprokit costs: its start, its hooks and its watching."""
