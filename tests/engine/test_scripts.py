"""The scripts are the files of ``lua/``, as they stand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import redis

from tbloom.engine.scripts import Script, files_of

LUA = Path(__file__).parents[2] / "lua"
FILES = sorted(path.relative_to(LUA).with_suffix("").as_posix() for path in LUA.rglob("*.lua"))
SCRIPTS = [file for file in FILES if not file.startswith("shared/")]
#: The limit of characters of ``add``, which a client sends to a server that does not know it.
LONGEST_ADD = 16_000


@pytest.mark.parametrize("file", SCRIPTS)
def test_a_script_is_its_files_as_they_stand(client: redis.Redis, file: str) -> None:
    """Each file comes after those that it includes; no two of them define one name; a server compiles them."""
    script, texts = Script(file), []
    for name in files_of(file):
        text = (LUA / f"{name}.lua").read_text(encoding="utf-8")
        [names] = re.findall(r"^-- Includes   (.*)$", text, re.MULTILINE)
        included = [] if names == "none" else [f"shared/{each}" for each in names.split(", ")]
        assert {*included} <= {*files_of(file)[: len(texts)]}
        texts.append(text)
    assert script.text == "".join(texts)
    defined = re.findall(r"^local (?:function )?([\w, ]+)", script.text, re.MULTILINE)
    names_defined = Counter(
        name for names in defined for name in names.strip().split(", ") if name != "_"
    )
    assert not {name: times for name, times in names_defined.items() if times > 1}
    assert client.script_load(script.text) == script.sha


def test_the_text_of_add_is_short() -> None:
    assert len(Script("bloom/add").text) <= LONGEST_ADD
