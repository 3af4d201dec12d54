"""Pictures of batches, for people: `dali_like.show`."""
