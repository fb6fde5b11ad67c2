"""Code that an agent might write, run in a sandbox and scored by hidden tests."""

from rayfine_env import load_env

ATTEMPTS = [
    "def balanced(text): return text.count('(') == text.count(')')",
    """
def balanced(text):
    while '()' in text or '[]' in text:
        text = text.replace('()', '').replace('[]', '')
    return not text
""",
]

with load_env("coding") as env:
    print(env.reset(seed=1, task="balanced").observation["task"])
    for code in ATTEMPTS:
        result = env.step({"code": code})
        print("tests passed:", result.reward, "done:", result.done)
