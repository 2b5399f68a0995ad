"""The list of mutants fits the code."""

from __future__ import annotations

import pytest

from tests.mutants import run


@pytest.mark.check
def test_every_mutant_can_be_applied_and_its_tests_exist() -> None:
    mutants = list(run.read_list(run.LIST.read_text(encoding="utf-8")))
    assert [] == list(run.faults(mutants))
