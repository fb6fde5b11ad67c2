"""From an environment's directory to an image: what is sent, how it is built, what it is called."""
