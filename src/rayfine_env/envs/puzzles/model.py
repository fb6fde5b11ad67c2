"""Any OpenAI-compatible model, asked over plain HTTP with the standard library."""

import asyncio
import json
import os
import urllib.error
import urllib.request
from typing import Any


class Model:
    """Where to ask, and how. A key is read from OPENAI_API_KEY or CHUTES_API_KEY."""

    def __init__(
        self, name: str | None, base_url: str | None, timeout: float, parameters: dict[str, Any]
    ) -> None:
        self._name = name or os.environ.get("MODEL", "")
        url = base_url or os.environ.get("OPENAI_BASE_URL", "")
        if not self._name or not url.startswith(("http://", "https://")):
            raise ValueError(
                "name a model and its endpoint: evaluate(model=…, base_url='https://…/v1'), or "
                "the variables MODEL and OPENAI_BASE_URL"
            )
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._key = os.environ.get("OPENAI_API_KEY") or os.environ.get("CHUTES_API_KEY")
        self._timeout = timeout
        self._parameters = parameters

    async def ask(self, prompt: str) -> tuple[str, str | None]:
        """What it said, or why it said nothing: a failed request is no wrong answer."""
        try:
            return await asyncio.to_thread(self._ask, prompt), None
        except (OSError, ValueError, KeyError, IndexError, TypeError) as exc:
            return "", f"{type(exc).__name__}: {exc}"

    def _ask(self, prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        body = {**self._parameters, "model": self._name, "messages": messages}
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=self._timeout) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"] or "")
