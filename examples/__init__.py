"""Programs that show the library at work; start with `examples.demo`."""
