"""What the query API answers (M-47): frozen values with plain fields. `horsies.monitoring` has them all."""
