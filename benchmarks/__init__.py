"""What a run costs, beside other ways to do the same: `python -m benchmarks`. How it measures: benchmarks/README.md."""
