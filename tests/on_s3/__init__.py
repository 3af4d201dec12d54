"""Sources that read from an object store. These tests have an environment of their own: `make s3`."""
