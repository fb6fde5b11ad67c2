"""The bridge to Gymnasium: `gym:CartPole-v1` is an environment of ours."""
