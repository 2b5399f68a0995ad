"""An item pipeline."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy.exceptions import DropItem


class Fates:
    """Does with each item what its ``fate`` says."""

    async def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        fate = item["fate"]
        if "later" in fate:
            await asyncio.sleep(0.1)
        if "dropped" in fate:
            raise DropItem(fate)
        if "fails" in fate:
            raise ZeroDivisionError
        if "cancelled" in fate:  # Scrapy says nothing of it
            raise asyncio.CancelledError
        return item
