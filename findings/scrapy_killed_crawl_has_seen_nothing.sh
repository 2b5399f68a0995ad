#!/bin/sh
# Guess: if a crawl of Scrapy with a JOBDIR is killed, requests.seen has the requests that it had fetched by then, in 2.19.0 as in
# 2.18.0, which wrote each line at once.
# Instead: in 2.19.0 it is empty. Records are written when the file's buffer is full, after some hundred requests, or at the end.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/killed.py" <<'PYTHON'
import os
import signal
import sys

import scrapy
from scrapy.crawler import CrawlerProcess


class Numbers(scrapy.Spider):
    name = "numbers"
    count = 0

    async def start(self):
        for number in range(100):
            yield scrapy.Request(f"data:,{number}")

    def parse(self, response):
        self.count += 1
        if self.count == 50:
            os.kill(os.getpid(), signal.SIGKILL)


process = CrawlerProcess({"JOBDIR": sys.argv[1], "LOG_ENABLED": False})
process.crawl(Numbers)
process.start()
PYTHON
for version in 2.18.0 2.19.0; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "scrapy==$version" "twisted==26.10.0"
    "$folder/$version/bin/python" "$folder/killed.py" "$folder/job-$version" 2> "$folder/said" || true
done
lines=$(wc -l < "$folder/job-2.18.0/requests.seen")
bytes=$(wc -c < "$folder/job-2.19.0/requests.seen")
echo "killed at its 50th page: Scrapy 2.18.0 has $lines lines in requests.seen, 2.19.0 has $bytes bytes"
[ "$lines" -ge 50 ] && [ "$bytes" -eq 0 ]
