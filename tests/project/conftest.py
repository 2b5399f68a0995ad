"""What is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import packages
from tests.helpers.making import made_once


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of this checkout, and a wheel made from that sdist."""
    return made_once(tmp_path_factory, "dist", packages.build)
