"""The text of the paper's page."""

PAGE = """\
# Papers, reproduced

The experiments of the paper with which tbloom began, repeated on a real Redis. It is of 2020, and puts the fingerprints of Scrapy-Redis into a list of Bloom filters, one for each hour or day, which expire by themselves. This page says where it is wrong.

`{command}` wrote this page on {day}, in {seconds}, with {about}. Slices are short, so that an "hour" takes {hour} s and a "day" {day_seconds} s. The processes, the server and its expiry are real.

## A crawl each hour

Two Scrapy processes share a filter with 2 slices. Each hour they fetch 100 pages that the filter calls new, of 300, in random order.

![Pages that the hourly crawls have in common](paper-hours.svg)

An hour shares no page with the hour before it, which is still in the window. After that, pages may be fetched again. {hours}

## A crawl each day

The same with 3 slices, and the paper's {hashes} hashes. The 300 pages last for 3 days; on day 4 only the pages of day 1 can be fetched, because only these have left the window.

![Pages that the daily crawls have in common](paper-days.svg)

{days} Nobody deletes anything: each slice leaves by its TTL.

{kept}

A full window of this size called {false_positives} of {strangers} items seen that were never added. The paper found fewer than 1 in 10,000.

## Several crawlers, one new URL

The paper's code asks for each bit of each slice, and then sets the bits. Between the two, another crawler may ask too. Three processes add the same URLs in the same order:

{race}

tbloom asks and remembers in one script, so exactly one of them is answered "new".

## The rate of a window

The paper says that L filters together have the rate p^L, so that more slices make fewer errors. That is so where an item must be in *all* filters. Here an item is seen if it is in *any* slice: each slice is one more chance of an error, and the rate is 1 - (1 - p)^L, about L * p.

To see it, {slices} slices were filled with {per_slice} items each at {bits_per_item} bits per item (a window with the rate 1e-4 needs {enough}). Each slice alone has the rate p = {slice_rate}.

{rates}

![The error rate of the window, measured and by both formulas](paper-rate.svg)

The product is wrong by a factor of about {times}. tbloom gives each slice its part of the window's rate, and keeps what was promised for the whole window. An error costs a page: it is skipped, though it was never fetched.

## The best size for {hashes} hashes

With {hashes} hashes a filter uses its memory best at {hashes} / ln 2 = 8.66 bits per item. Its rate is 2^-{hashes} then, whatever its size; for a lower rate, more hashes or more memory are needed. tbloom's items have all bits in one block, which Redis reads at once, for a slightly higher rate.

{best}

`tbloom plan --table` has the rates for other sizes, `tbloom plan --bits 2^30 --hashes {hashes}` a filter of a given size.

## Memory

A window of {window_slices} slices with the error rate 1e-4 and room for all items, beside the Redis set of scrapy-redis, which never forgets. An item takes {set_item} bytes in the set (at {largest} items) and {window_item} in the window.

A crawl also has a queue. A request in scrapy-redis' queue takes {request} bytes (measured with {requests}), whatever the dupefilter. If one request waits for every {waiting} items, the queue is larger than the window: it is what to save on next.

{memory}

*: computed, from the bytes per item or request above, and from tbloom's sizes. The set grew as far as the free memory of this machine and the length of the run allow.

![Memory of the set and of the window, with and without the queue](paper-memory.svg)
"""
