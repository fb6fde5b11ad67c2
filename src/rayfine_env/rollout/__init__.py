"""Rollouts: many episodes of one policy in one environment, kept, scored and read."""
