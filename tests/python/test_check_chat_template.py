"""scripts/check_chat_template.py, as a user runs it, and the templates of tests/fixtures/chats/families."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sluice

pytest.importorskip("jinja2")
pytestmark = pytest.mark.skipif(not hasattr(sluice, "ChatTemplate"),
                                reason="built without Sluice::text")

ROOT = Path(__file__).parents[2]
GOOD = "{% for m in messages %}{{ bos_token }}{{ m.content|default('', true) }}{% endfor %}"
TOO_LARGE = "{% for m in messages %}{{ 99999999999999999999 }}{% endfor %}"  # as docs/chat-templates.md says


def check(*arguments):
    made = subprocess.run([sys.executable, "-B", ROOT / "scripts/check_chat_template.py", *arguments],
                          capture_output=True, text=True, timeout=300)
    return made.returncode, made.stdout, made.stderr


def reports(*arguments):
    code, out, err = check("--json", *arguments)
    assert err == ""
    return code, json.loads(out)


def test_families_are_equal():
    families = sorted((ROOT / "tests/fixtures/chats/families").glob("*.jinja"))
    assert len(families) >= 40
    code, made = reports(*families, "--count", "40")
    assert [report for report in made if report["equal"] != 40] == []
    assert code == 0


def test_files_of_every_kind(tmp_path):
    file = tmp_path / "good.jinja"
    file.write_text(GOOD)
    config = tmp_path / "model" / "tokenizer_config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"chat_template": [{"name": "default", "template": GOOD},
                                                    {"name": "tool_use", "template": "{{ eos_token }}"}],
                                  "bos_token": {"content": "<bos>"}, "eos_token": "<eos>"}))
    code, made = reports(file, config, config.parent, "--count", "25")
    assert code == 0
    assert [Path(report["template"].split(" ")[0]).name for report in made] == [
        "good.jinja", "tokenizer_config.json", "tokenizer_config.json", "model", "model"]
    assert all(report["equal"] == 25 for report in made)
    (config.parent / "chat_template.jinja").write_text(TOO_LARGE)
    code, made = reports(config.parent, "--count", "5")
    assert code == 1 and made[0]["equal"] == 0  # the file goes before the configuration


def test_a_difference_is_shown(tmp_path):
    file = tmp_path / "large.jinja"
    file.write_text(TOO_LARGE)
    code, out, _ = check(file, "--count", "3")
    assert code == 1
    assert "large.jinja: 0 of 3 conversations are equal" in out
    assert "first difference: one message" in out
    assert "jinja2  '99999999999999999999'" in out and "64 bits" in out


def test_what_cannot_be_read(tmp_path):
    code, _, err = check(tmp_path / "none.jinja")
    assert code == 2 and "cannot be read" in err
    empty = tmp_path / "tokenizer_config.json"
    empty.write_text("{}")
    code, _, err = check(empty)
    assert code == 2 and "it has no chat_template" in err
    code, out, _ = check("--help")
    assert code == 0 and "tokenizer_config.json" in out
