"""The output of errbacks of failed downloads, which the spider middlewares do not see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import arg_to_iter
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

if TYPE_CHECKING:
    from tbloom.scrapy.claims.page import Page
    from tbloom.scrapy.claims.pages import Pages


def follow_errback(pages: Pages, page: Page) -> None:
    """Makes the output of the errback followed that the page's request may have."""
    request, errback = page.request, page.request.errback
    if errback is None:
        return

    async def output(failure: Failure, result: Any) -> AsyncIterator[Any]:
        with pages.following(failure) as tell:
            async for found in as_async_generator(result):
                tell(found)
                yield found

    @wraps(errback)
    async def wrapped(failure: Failure) -> AsyncIterator[Any]:
        request.errback = errback  # a copy that the errback makes has the spider's own method, which a queue can store
        try:
            found: Any = errback(failure)
            if isinstance(found, Deferred):
                found = maybe_deferred_to_future(found)
            if isawaitable(found):
                found = await found
            if isinstance(found, Failure):
                found.raiseException()
        except BaseException:
            pages.output_may_have_ended(page)
            raise
        return output(failure, found if isinstance(found, AsyncIterator) else arg_to_iter(found))

    request.errback = wrapped
