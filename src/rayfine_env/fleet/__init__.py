"""Many instances as one: warm pools, replicas, and the sweep of what nobody holds any more."""
