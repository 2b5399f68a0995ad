"""The text of the benchmarks' page."""

from __future__ import annotations

from string import Formatter
from typing import Any

PAGE = """\
# Benchmarks

What tbloom costs, compared with what users choose today: rates and memory with a core each for client and server, half of the items seen before.

{overview}

*items/s*: one call for each item; *by 500*: 500 items a call. *bytes*: of Redis, per item. *mistakes*: items that are called seen, and were never added.
*new once*: of several crawlers that ask for an item at once, one gets "new". *forgets*: an item leaves after a week.

{faster} {smaller}
Crawlers ask less often: with the [local cache](#on-real-pages), and [a call per page](#waiting-for-redis), most links need no request to Redis.

Measured on {when} by `make bench`, which writes this page. Timings on a shared machine differ from run to run; read the ratios.
`make bench ARGS=--quick` takes a minute or two, `make bench ARGS="--only race"` measures one part again. [The machine](#the-machine).

## Speed

`make bench ARGS="--only race"`

![Rates](benchmarks-rate.svg)

One Redis, and the same fingerprints of 40 hex digits for all; half of them were seen before. Each contender is
called as its users call it, with {race_capacity} items on the server already; tbloom has that many in each of its 7 slices,
as after a week. {race_rounds} rounds of {race_items} items; in each round all run once, in another order.
Medians, in microseconds per item: *us* from call to answer, *client us* the processor time of the client's
process, *commands us* the server's time in commands, *server us* the processor time of the server's process.
*x SADD* is the median of the rounds' ratios.

With a core each, the waiting process sleeps, and waking it costs more than most commands. On one core the two take
turns. Both are shown, because an unpinned system switches between them.

{race}

What the others lack: scrapy-redis-bloomfilter, pottery and walrus read and write in
separate calls, so two crawlers can both get "new". Only `SET NX EX`, and the 7 filters of RedisBloom (with a module and
your own script), forget an item after a week. None of them has calls that are safe to send again: if a reply is
lost, the next answer is "seen", and the page is never fetched.

### On real pages

`make bench ARGS="--only linkrace"`

The same with the fingerprints of all {linkrace_links} links of Debian's `python3.11-doc`, {linkrace_pages} pages in the order in which a
crawler finds them; {seen} % lead to pages found before. All begin empty.

{linkrace}

## Memory and mistakes

`make bench ARGS="--only footprint"`

![Bytes per item](benchmarks-memory.svg)

Each filter has the size for {footprint_items} items (scrapy-redis-bloomfilter's as its documents say; the 7 filters of
RedisBloom, and tbloom's 7 slices, have a seventh each). The bytes are those that Redis has allocated. A mistake is an
item called seen that was never added. tbloom may make one in 10,000 over the whole window, and reserves half of that
for slices that grow. RedisBloom rounds a filter up to a power of two.

{footprint}

## Waiting for Redis

`make bench ARGS="--only links"`

![Waiting](benchmarks-waiting.svg)

The same {links_links} links through the dupefilters' `request_seen`. Waiting is the time in which the crawler's process
does nothing: from call to answer, less its processor time. Ways with a call for each link were measured on
some pages, and scaled to all. *Local cache*: items that Redis has called seen are kept in the process
for a minute, as by default in Scrapy. *A call per page*: the add-on's middleware asks for all links of a page at once.

{waiting}

Redis is further away through a proxy in its own process, which takes some time too:

{line}

## ExactFilter

`make bench ARGS="--only exact"`

`ExactFilter` compared with other stores that never confuse two items: scrapy-redis' set, which forgets nothing; a key for
each item; and a hash of fingerprints with expiries, which needs a process that deletes expired fields. The items live for
1 to 24 hours, each batch for another time, except in the set. The bytes are those that Redis has allocated.

{exact_memory}

All buckets of an `ExactFilter` fill up and are split at about the same time, so the bytes per item change as the number
of buckets doubles:

{exact_growth}

### Why sorted sets

Redis 7.4 and later, and Valkey 9, can expire fields of hashes (`HPEXPIREAT`). `ExactFilter` uses sorted sets on all servers, and
sweeps them itself. Both in buckets of the same sizes, each with {exact_first} items:

{exact_fields}

Measured once, by hand, in buckets of 25 to 50: sorted sets take 34 bytes per item on Redis 7.4.1 and 8.0.6 and 31 on Valkey 9.1;
hashes with a TTL for each field 37 on Redis 7.4.1 and 8.0.6, where they are compact (listpackex), and 71 on Valkey 9.1, where they are
hash tables. A new item took the server 4.9 to 5.5 us in sorted sets, and 5.6 to 6.0 in hashes.

### New, then seen

{exact_stock} items are on the server already, for `TimeBloom` in each of 7 slices. {exact_rounds} rounds of {exact_items} new items,
each of them asked for a second time; figures as under *Speed*, *x SADD* of one by one.

{exact_speed}

### Dead entries

No separate process deletes the expired entries of an `ExactFilter`: each call also sweeps a few other buckets, and
more if it finds many dead entries. Here 90 % of {exact_dead_items} items have expired, and live ones are in the same buckets; then new items
are added one by one. *Held* is the time for which one call of the step held the server.

{exact_dead}

## Distinct counts

`make bench ARGS="--only distinct"`

`DistinctCounter` compared with other ways to count distinct users in Redis: a bitmap of ids (`SETBIT`, `BITCOUNT`, `BITOP`), a `SET` of ids
(`SADD`, `SCARD`, `SINTERCARD`, `SUNIONSTORE`), and HyperLogLog (`PFADD`, `PFCOUNT`), which is not exact, and has neither AND nor XOR. All count the same ids
out of {distinct_space} possible ones. `DistinctCounter` counts integers here (`mapping=None`); for other members it keeps a mapping
to ids, which the others leave to the application.

*Scattered* ids are drawn at random, *clustered* ones are consecutive. The two operands share half of their ids; of half of all ids, a
half by chance. *Again*: the client has the sets from an earlier question, and asks whether they have changed.

### Memory

The bytes are the `MEMORY USAGE` of all keys of a counter, without the mapping. (It leaves out what the allocator adds to the
members of a large `SET`.) The length of a bitmap depends only on its largest id.

{distinct_memory}

A mapping is stored in addition, once for all counters of the same members. Names here have 13 characters; their length
matters only to the hash of names and ids:

{distinct_mapping}

### Counting

Medians of {distinct_rounds} interleaved rounds, client and server with a core each: *us* from call to answer, *commands us* the server's time in
commands. The others are asked through redis-py's pool; `DistinctCounter` keeps its connection, which is part of its *us*, and not of its
*commands us*. A bitmap needs `BITOP`, `BITCOUNT` and `UNLINK` for all but its own count, in a pipeline. A `SET` has no XOR: two `SCARD` and a
`SINTERCARD`, which would do for the OR of two as well; `SUNIONSTORE` takes any number of them. For a dense `SET` only the count is
measured: the others would block the server for seconds.

{distinct_counting}

Exact peers that are faster than the counter, from call to answer, even slightly (HyperLogLog is faster in all that it can do):

{distinct_slower}

The time of a counter as a multiple of the bitmap's, and the longest command of all verbs (median; times under {distinct_daily_slow} us
count as {distinct_daily_slow} us). For AND, where the time goes: processor time of client and server, and how much of the server's is in commands:

{distinct_ratio}

Why not at most 1.5 times, and a tenth again? The first time takes a round trip for the versions and one for the chunks. The commands take
less than a bitmap's `BITOP`, but the chunks pass through a socket, which costs both sides most of their time, and the client makes a
bitmap of them; `BITOP` stays in the server's memory, and replies with a number. (Sets whose chunks are few are faster than `BITOP`.) Again, only
versions pass: what is left is the client's time for one round trip, which a pipeline of `BITOP` and `BITCOUNT` needs as well.

Published elsewhere, for other ids on other hardware, and not measured here: the table of
[redis-roaring](https://github.com/aviggiano/redis-roaring/blob/master/docs/guide/performance.md), a module in C, for CRoaring's data set
`census1881`, in us an operation: `R.BITCOUNT` 15 and `BITCOUNT` 38; AND 23 and 163; OR 27 and 210; XOR 24 and 186.

### Several slices

{distinct_daily_days} days of one counter, and a bitmap, a `SET` and a HyperLogLog for each day: the union of the last {distinct_daily_week} and of all {distinct_daily_days}, and the
intersection of the last two. The ids of each day are drawn at random, or consecutive; three quarters are those of the day before. Past slices
can't be added to, so all are written directly in the format of `DistinctCounter`. *MB*: of all days. *ms*: from call to answer. *longest ms*: the
longest time for which one command of a count held the server. Medians of {distinct_daily_rounds} counts; times under {distinct_daily_slow} us count as {distinct_daily_slow} us.

{distinct_daily}

{distinct_longest}

### Adding

Rounds of {distinct_singles} ids one by one, then rounds of 500 at once; per id. New ones are not in this counter; then the same again.
`SETBIT` and `SADD` are pipelined by 500, so they answer for each member; one `PFADD` with 500 members does not.

{distinct_adding}

With a mapping, a member gets its id with its first add, in any counter:

{distinct_first}

## LocalBloom

`make bench ARGS="--only local"`

`LocalBloom` with 7 slices of {local_capacity}, in memory and in a file, and other stores for a single process: rounds of {local_items} items,
all of them new, in a window that is empty and in one whose slices all hold half of their capacity. numpy is installed.
rbloom's filters forget nothing, and can't be shared while they are written to; a set is exact.

{local}

{local_memory}

## Pages

{pages}

## Start-up

`make bench ARGS="--only startup"`

From the start of the process to its end; medians of {startup_rounds} interleaved rounds. `pass` is Python alone.

{startup}

## Importing from a set

`make bench ARGS="--only imports"`

`tbloom import --from-set` of {imports_items} fingerprints, from scrapy-redis' set on the same Redis. (Without the time that Python
takes to start. Commands under a millisecond count as one millisecond.)

{imports}

## Claims

`make bench-claims`

A claim takes about 100 bytes on the server, and its note, until it is committed or released
(`bloom/test_claims.py::test_a_claims_memory_is_bounded`). One call after another, Redis 7.0.15, medians of 9 rounds:

|  | time, to that of `add` | server us |
| --- | ---: | ---: |
| `add`, new | 1.00 | 16.3 |
| `claim`, new | 1.09 | 13.5 |
| `claim`, new, with a note of 200 characters | 1.05 | 13.2 |
| `commit` | 0.99 | 13.5 |
| `release` | 0.82 | 5.5 |

## How long is Redis held up?

`make bench ARGS="--only longest"`

A batch is sent as several script calls. None may hold the server for more than 5 ms.

{longest}

## Does a large filter cost more?

`make bench ARGS="--only capacities"`

{capacities}

With a core each. A slice of 1,000,000 has {million_bits} bits per item; Redis' allocator rounds its key up to {million_allocated}, but
does not touch the added memory.

## How many hashes?

`make bench ARGS="--only hashes"`

A hash is a row of an item's block, so more hashes make larger blocks. Bits per item, for the error rate that one slice of a
window of 7 has before it grows, where the window's is 1e-2, 1e-4 and 1e-6 (computed, see `tbloom/bloom/sizing.py`). Bold: the
number that tbloom takes.

{bits_by_hashes}

By default tbloom takes 0.82 hashes for each bit of the rate: that costs 1 to 3 % more memory than the best number, and has a sixth
fewer rows. But 16 columns are one 128-bit digest, so it takes 16 where up to 20 would be right, for at most 6 % more memory.

Measured at 1e-4 (beyond 16 rows an item has 36 bytes on the wire, not 20). Medians, per item, with a core each.

{hashes}

## An add beside SADD

`make bench ARGS="--only adding"`

An `add` is one call of a script. Python computes where the item's bits are: its columns, and the byte at which its block begins. The script
reads and writes there. The usual `add` enters eight functions of tbloom, and its connection is kept from call to call. redis-py takes one
from a pool for each `SADD`.

{adding_rounds} rounds in which 0, 50, 95 or 100 % of the items were seen before, in the current slice; all else as under *Speed*. With 0 % all items
are new, and with 100 % all are seen: there *commands us* is the server's time in commands for a new, and for a seen item.
*x SADD*: the rate, to that of `SADD` asked in the same way, one by one or in pipelines of 500. *x SADD's*: the client's processor time, to that of
the same `SADD`. *bytes*: what the server received. All but the ratios are per item.

{adding}

### Tasks and threads

`make bench ARGS="--only asyncio"`

A lone `add` goes at once. Items of other tasks of the same event loop, or of other threads, that arrive while a call is on its way wait for it,
and go together in the next one. Each caller gets its own answer. For `SADD` each task or thread has a connection, from a pool of that size.

{asyncio_rounds} rounds of {asyncio_items} items, half of them seen before. Each task or thread takes the next item until there is none. *at once*: how many
there are. *x SADD*: the rate, to that of as many that call `SADD`. *x one*: the rate, to that of one task or thread that calls the same.

{asyncio}

### Where the time goes

`make bench ARGS="--only steps"`

The script of `add`, ended after each of its steps, and in batches with a step left out; on one core, one call after another. A seen
item is in the current slice.

{steps}

So an `add` alone pays for the call, the token and the clock before it looks at anything, and each command inside the script takes about
a microsecond. `SADD` does all it does in two. In a batch the looks at the older slices and the insert remain. Tried for the insert, and
slower: the block joined from pieces; numbers of 32 bits, or single bytes, in place of 48 bits; one `BITFIELD` for all bits, whose numbers
Lua has to format. Tried for the looks, and not faster: one `BITFIELD_RO` for the first bits of all items of a call, `GETRANGE` of the
first rows.

## Goals

The first of two figures is with a core each for client and server, the second with one core for both. For memory:
as under *Memory and mistakes*, and at each capacity up to 1,000,000; for `ExactFilter`, with each number of items. The three
figures of `DistinctCounter` of 10 ids are for count, AND and OR; two are the least and the greatest. *In part*: some of the figures reach the goal.

{goals}

## The machine

{machine}
"""


def filled(fields: dict[str, Any], former: str | None = None) -> str:
    """The page. A part (a heading, and what is below it) that lacks a field is as on the ``former`` page."""
    if former is None:
        return PAGE.format_map(fields)
    kept = _parts(former)
    return "".join(
        part.format_map(fields)
        if {name for _, name, *_ in Formatter().parse(part) if name} <= fields.keys()
        else kept.get(heading, "")
        for heading, part in _parts(PAGE).items()
    )


def _parts(text: str) -> dict[str, str]:
    """Each of the template's headings, with the text from there to the next one."""
    headings = {line for line in PAGE.splitlines() if line.startswith("#")}
    parts, heading = {}, ""
    for line in text.splitlines():
        heading = line if line in headings else heading
        parts[heading] = f"{parts.get(heading, '')}{line}\n"
    return parts
