"""Everything outside the watched process: run, watch, kill, judge, pack, render. Never imports torch."""
