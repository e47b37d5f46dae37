"""Programs that measure; each says with its exit status whether its goals are met."""
