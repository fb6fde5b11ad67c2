"""Greets people and counts their words."""


def hello(name: str = "World") -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


async def words(text: str) -> dict[str, int]:
    """Count how often each word occurs."""
    found = text.lower().split()
    return {word: found.count(word) for word in sorted(set(found))}
