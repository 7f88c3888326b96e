"""Outputs that match a JSON schema or are one of a list, where xgrammar is installed."""

import json
import os
from pathlib import Path

import sluice

os.chdir(Path(__file__).parent.parent.parent)

with sluice.EngineClient.local("models/default") as client:
    if not client.info["has_grammars"]:
        print("xgrammar is not installed")
        raise SystemExit(0)

# [grammar]
KING = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 16}, "mood": {"enum": ["glad", "sad"]}},
    "required": ["name", "mood"],
}

with sluice.EngineClient.local("models/default") as client:
    king = json.loads(client.generate("The king's ", json_schema=KING, seed=3).text)
    mood = client.generate("The king was", choices=["glad", "sad"], seed=3).text
# [grammar]

assert sorted(king) == ["mood", "name"] and mood in ("glad", "sad")
