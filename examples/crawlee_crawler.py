"""A crawler by Crawlee that fetches a page once within the window, whichever crawl has met it.

    python crawlee_crawler.py https://example.com/

A hook claims each page before it is fetched, and the handler commits it. A page that could not be fetched is released, and
those of a crawl that was killed are free after ``session_ttl`` seconds: the next crawl that meets them fetches them.
"""

import asyncio
import os
import sys

from crawlee.crawlers import BasicCrawlingContext, ParselCrawler, ParselCrawlingContext
from crawlee.errors import ContextPipelineInterruptedError
from crawlee.storage_clients import MemoryStorageClient

from tbloom import AsyncTimeBloom, Claim


def crawler(seen: AsyncTimeBloom) -> ParselCrawler:
    made = ParselCrawler(storage_client=MemoryStorageClient(), configure_logging=False)

    @made.pre_navigation_hook
    async def claim(context: BasicCrawlingContext) -> None:
        request = context.request
        if request.retry_count == 0 and await seen.claim(request.unique_key) is not Claim.NEW:
            raise ContextPipelineInterruptedError("seen, or claimed by another crawl")

    @made.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        await context.enqueue_links()
        print(context.request.url)
        await seen.commit(context.request.unique_key)

    @made.failed_request_handler
    async def give_up(context: BasicCrawlingContext, _: Exception) -> None:
        await seen.release(context.request.unique_key)

    return made


async def main() -> None:
    url = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    async with AsyncTimeBloom.from_url(url, "crawlee", granularity="d", slices=7) as seen:
        await crawler(seen).run([sys.argv[1]])


if __name__ == "__main__":
    asyncio.run(main())
