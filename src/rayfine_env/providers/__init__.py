"""What runs an instance: in this process, as a process, and further away."""
