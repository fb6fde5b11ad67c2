"""An OpenEnv package, as its own template lays one out."""
