"""The image that was built last, noted in the project's config.json."""

import json
from pathlib import Path


def write_back(config: Path, image: str) -> None:
    """Name the image under `artifacts`, in place of the one that was there; the rest stays."""
    said = json.loads(config.read_text())
    others = [one for one in said.get("artifacts", []) if one.get("type", "image") != "image"]
    said["artifacts"] = [*others, {"id": "", "type": "image", "content": image}]
    half = config.with_suffix(".json.half")
    half.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n")
    half.chmod(config.stat().st_mode & 0o777)
    half.rename(config)
