"""The output of a page's callback or errback, followed to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import arg_to_iter
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

if TYPE_CHECKING:
    from scrapy import Request

    from tbloom.scrapy.claims.page import Page
    from tbloom.scrapy.claims.pages import Pages


@contextmanager
def followed(pages: Pages, page: Page) -> Iterator[None]:
    """Within it, output of the page passes."""
    pages.entering_output(page)
    failed = "unfinished"
    try:
        yield
        failed = ""
    except Exception as error:
        failed = reason(error)
        raise
    finally:
        page.failed = page.failed or failed
        pages.left_output(page)


async def follow_output(
    pages: Pages, page: Page, result: AsyncIterator[Any] | Iterable[Any]
) -> AsyncIterator[Any]:
    """The output of the page's callback or errback, to its end."""
    with followed(pages, page):
        async for found in as_async_generator(result):
            pages.yielded(page, found)
            yield found


def follow_errback(pages: Pages, page: Page, request: Request) -> None:
    """Makes the output of the request's errback followed: the spider middlewares do not see it."""
    errback: Any = request.errback

    def output(found: Any) -> AsyncIterator[Any]:
        is_async = isinstance(found, AsyncIterator)
        return follow_output(pages, page, found if is_async else arg_to_iter(found))

    async def when_ready(found: Any) -> AsyncIterator[Any]:
        page.inside += 1
        try:
            ready = await (
                maybe_deferred_to_future(found) if isinstance(found, Deferred) else found
            )
        except BaseException:
            pages.left_output(page)
            raise
        page.inside -= 1  # its output follows, some turns of the event loop later
        return output(ready)

    @wraps(errback)
    def wrapped(failure: Failure) -> Any:
        request.errback = errback  # a copy that the errback makes has the spider's own method, which a queue can store
        try:
            found = errback(failure)
        except BaseException:
            pages.output_may_have_ended(page)
            raise
        if found is None or isinstance(found, Failure):
            pages.output_may_have_ended(page)
            return found
        return when_ready(found) if isawaitable(found) else output(found)

    request.errback = wrapped


def reason(error: BaseException) -> str:
    """Why a page has failed whose callback raised this."""
    return f"callback/{type(error).__name__}"
