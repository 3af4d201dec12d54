"""What this process has to do with GPUs. Imports nothing of the layers above."""
