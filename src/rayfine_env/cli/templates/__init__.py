"""What `rayfine init` writes: real modules, checked as all others are."""
