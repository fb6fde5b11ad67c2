"""The least there can be."""


def custom_method() -> str:
    return "custom"
