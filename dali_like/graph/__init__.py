"""What a pipeline computes: nodes, operators, and the executor that runs them."""
