"""A crawler of one site with asyncio and httpx: any number of processes, each page fetched once.

    pip install httpx
    python crawler.py https://example.com/

Start it as often as you like. A process claims the pages that it finds, each with a note that has its URL. It leaves those that
it won't fetch soon, and another process takes them, as it does with all pages of one that was killed. Ctrl-C and SIGTERM end a
process once its running requests are done; the others, or the next one that is started, take its pages.

Meanwhile, ``tbloom queue crawler`` shows the processes and the numbers of pages, ``tbloom failed crawler`` which pages have
failed and why, and ``tbloom retry crawler --all`` gives these to a process that runs. The next one that is started takes them, too.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import deque
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx

from tbloom import AsyncTimeBloom, Claim

#: Requests at a time, and the pages that a process keeps for itself.
TASKS, OWN = 10, 100


class Crawler:
    def __init__(self, seen: AsyncTimeBloom, http: httpx.AsyncClient, start: str) -> None:
        self.seen, self.http, self.start = seen, http, start
        #: URLs, each with how often in a row it has failed.
        self.pages: deque[tuple[str, int]] = deque()
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        await self.take(idle=False)  # the others see that this process is at work
        await self.take(failed=True)  # in earlier crawls
        await self.claim([self.start])
        running: set[asyncio.Task[None]] = set()
        has_failed = True  # more has, perhaps
        while not self.stopped.is_set():
            while self.pages and len(running) < TASKS:
                running.add(asyncio.create_task(self.fetch(*self.pages.popleft())))
            if running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                continue
            if has_failed:
                await self.take(failed=True)
                has_failed = bool(self.pages)
            elif await self.take():
                return  # all pages are done
            elif not self.pages:
                await asyncio.sleep(1)
        await asyncio.gather(*running)

    async def take(self, *, idle: bool = True, failed: bool = False) -> bool:
        taken = await self.seen.take(TASKS, idle=idle, failed=failed)
        self.pages += [(json.loads(note.text)["url"], note.failures) for note in taken.notes]
        return taken.is_over

    async def claim(self, urls: list[str]) -> None:
        notes = [json.dumps({"url": url}) for url in urls]
        claims = await self.seen.claim_many(urls, notes=notes)
        self.pages += [(url, 0) for url, claim in zip(urls, claims) if claim is Claim.NEW]
        surplus = [self.pages.pop()[0] for _ in range(len(self.pages) - OWN)]
        await self.seen.leave_many(surplus)

    async def fetch(self, url: str, failures: int) -> None:
        try:
            response = await self.http.get(url)
            response.raise_for_status()
        except httpx.HTTPError as error:
            kind = type(error).__name__  # "ConnectTimeout"
            await self.seen.fail(url, f"download/{kind}", str(error), failures=failures + 1)
            return
        print(url, flush=True)  # here you would keep the page
        found = {
            urldefrag(urljoin(str(response.url), link)).url  # it may have been redirected
            for link in re.findall(r'href="([^"]+)"', response.text)
        }
        site = urlsplit(self.start).netloc
        await self.claim([link for link in found if urlsplit(link).netloc == site])
        # After its links: if the process is killed before, both are done again.
        await self.seen.commit(url)


async def main(start: str) -> None:
    redis = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
    ttl = float(os.environ.get("SESSION_TTL", "60"))
    async with (
        AsyncTimeBloom.from_url(
            redis, "crawler", granularity="d", slices=7, session_ttl=ttl
        ) as seen,
        httpx.AsyncClient(follow_redirects=True) as http,
    ):
        crawler = Crawler(seen, http, start)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, crawler.stopped.set)
        await crawler.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
