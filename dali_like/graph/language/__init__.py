"""Language of pipelines: nodes, constants, arithmetic, conditions, and the interface of operators. No execution."""
