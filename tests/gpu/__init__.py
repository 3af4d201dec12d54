"""What only a GPU can show. Skipped where there is none; `make gpu` runs it together with the benchmarks of GPUs."""
