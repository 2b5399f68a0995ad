// The client's command line.
//
//   npm install
//   node main.mjs redis://localhost:6379 news '{"capacity": 1000}' add < items.txt         1 new, 0 seen; a line for each item
//   node main.mjs redis://localhost:6379 news '{"capacity": 1000}' contains < items.txt    1 seen, 0 not
//   node main.mjs --vectors     checks the client against tests/format_vectors.json
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis from "ioredis";
import { TimeBloom } from "./client.mjs";
import { blockOf, blocksIn, columnsOf, digestOf, packed, rowsApart, shardOf } from "./format.mjs";

function bytesOf(items, stored) { // a slice with these items
  const { bits, hashes } = JSON.parse(stored), data = Buffer.alloc(bits / 8);
  for (const digest of items.map(digestOf))
    for (let row = 0; row < hashes; row++) {
      const bit = (blockOf(digest, blocksIn(bits, hashes)) * rowsApart(hashes) + row) * 64 + columnsOf(digest, hashes)[row];
      data[bit >> 3] |= 128 >> (bit & 7);
    }
  return data.toString("hex");
}

function checkVectors() {
  const known = JSON.parse(readFileSync(new URL("../../tests/format_vectors.json", import.meta.url), "utf8"));
  const here = ({ parameters: { bits, shards, granularity } }) => !bits && !shards && !/^([wm]|null)$/.test(granularity);
  for (const { item, item_hex, ...vector } of known.items) {
    const digest = digestOf(item ?? Buffer.from(item_hex, "hex"));
    assert.equal(digest.toString("hex"), vector.digest);
    assert.deepEqual([...columnsOf(digest, 20)].slice(0, 20), vector.columns_of_20_rows);
    for (const [blocks, block] of Object.entries(vector.blocks)) assert.equal(blockOf(digest, blocks), block);
    for (const [shards, shard] of Object.entries(vector.shards)) assert.equal(shardOf(digest, shards), shard);
    for (const { sizes, bytes } of vector.packed)
      assert.equal(packed(digest, sizes.map(([blocks, hashes]) => ({ blocks, hashes }))).toString("hex"), bytes);
  }
  for (const { parameters, stored } of known.parameters.filter(here))
    assert.equal(new TimeBloom(null, "news", parameters).stored, stored);
  for (const { granularity, tz, at, begins, ends, live_of_3, leaves_window_of_3 } of known.slices)
    if (tz === "UTC" && granularity && granularity !== "w") {
      const { labels, times } = new TimeBloom(null, "news", { granularity, slices: 3 }).live(at);
      assert.deepEqual([labels.reverse(), times], [live_of_3, [begins, ends, leaves_window_of_3]]);
    }
  for (const { parameters, live, slice, grows, begins } of known.growth.filter(here)) {
    const filter = new TimeBloom(null, "news", parameters);
    for (const { layout, grown } of grows) assert.equal(filter.grown(filter.layoutOf(layout), live, slice), grown);
    assert.equal(filter.beginning(begins.items), begins.part);
    const before = filter.layoutOf(begins.layout);
    assert.equal(filter.grown(before, live, begins.slice), begins.had_begun);
    assert.equal(filter.withParts(before, live, begins.slice, [begins.part]), begins.begun);
  }
  for (const { parameters, items, bytes } of known.small_slices.filter(here))
    assert.equal(bytesOf(items, new TimeBloom(null, "news", parameters).stored), bytes);
}

const [url, name, parameters, verb] = process.argv.slice(2);
if (url === "--vectors") checkVectors();
else {
  const redis = new Redis(url), filter = new TimeBloom(redis, name, JSON.parse(parameters));
  const items = readFileSync(0, "utf8").split("\n").filter(Boolean);
  try {
    const answers = await (verb === "add" ? filter.addMany(items) : filter.containsMany(items));
    process.stdout.write(answers.map((answer) => (answer ? "1\n" : "0\n")).join(""));
  } finally {
    redis.disconnect();
  }
}
