"""The scripts are the files of ``lua/``, as they stand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import redis

from tbloom.engine.scripts import Script

LUA = Path(__file__).parents[2] / "lua"
FILES = sorted(path.relative_to(LUA).with_suffix("").as_posix() for path in LUA.rglob("*.lua"))
SCRIPTS = [file for file in FILES if not file.startswith("shared/")]
#: The limit of characters of ``add``, which a client sends to a server that does not know it.
LONGEST_ADD = 16_000


@pytest.mark.parametrize("file", SCRIPTS)
def test_a_script_is_its_files_as_they_stand(client: redis.Redis, file: str) -> None:
    """Its lines are those of the files, each of which comes once; no two of them define one name; a server compiles them."""
    script = Script(file)
    lines, files = Counter[str](), [file]
    for name in files:
        text = (LUA / f"{name}.lua").read_text(encoding="utf-8")
        lines.update(text.splitlines())
        included = ", ".join(re.findall(r"^-- Includes   (.*)$", text, re.MULTILINE)).split(", ")
        places = [f"shared/{each}" for each in included if each != "none"]
        files += [place for place in dict.fromkeys(places) if place not in files]
    assert lines == Counter(script.text.splitlines())
    defined = re.findall(r"^local (?:function )?([\w, ]+)", script.text, re.MULTILINE)
    names_defined = Counter(
        name for names in defined for name in names.strip().split(", ") if name != "_"
    )
    assert not {name: times for name, times in names_defined.items() if times > 1}
    assert client.script_load(script.text) == script.sha


def test_the_text_of_add_is_short() -> None:
    assert len(Script("bloom/add").text) <= LONGEST_ADD
