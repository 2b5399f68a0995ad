// A client of tbloom's filters, written from docs/format.md: what Python has added is seen here, and the reverse. It adds to
// filters of one shard, with slices of an hour or a day in UTC, or of a fixed length; and it looks items up.
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { choose, digestOf, packed, partShare } from "./format.mjs";

const LANE_TTL = 3_600_000, LOOKS_PER_CALL = 1000, MAX_CORRECTIONS = 16;
const UNITS = { s: 1, min: 60, h: 3600, d: 86_400, w: 604_800 };

// A script is its file, after the functions of lua/shared that it calls.
const LUA = new URL("../../lua/", import.meta.url), read = (path) => readFileSync(new URL(path, LUA), "utf8");
const SHARED = readdirSync(new URL("shared", LUA)).sort().flatMap((file) => read(`shared/${file}`).trim().split("\n\n").slice(1))
  .map((body) => [/^local (?:function )?(\w+)/m.exec(body)[1], body]);
function calledIn(text, found = new Map()) {
  for (const [name, body] of SHARED)
    if (!found.has(name) && body !== text && new RegExp(`(?<!function )\\b${name}[([]`).test(text))
      calledIn(body, found).set(name, body);
  return found;
}
const [ADD, CONTAINS, BEGIN_SLICE] = ["add", "contains", "begin_slice"].map((name) => {
  const body = read(`bloom/${name}.lua`), text = [...calledIn(body).values(), body].join("\n\n");
  return { text, sha: createHash("sha1").update(text).digest("hex") };
});

export class TimeBloom {
  #redis; #stem; #lanes = []; #lanesMade = 0; #client = randomBytes(8).toString("hex"); #ahead = 0; #layout = "";

  constructor(redis, name, { granularity = "d", slices = 7, capacity = 1_000_000, error_rate = 1e-4, grow = true } = {}) {
    const [, number, unit] = /^(\d*)(s|min|h|d|w)$/.exec(granularity);
    this.length = (number || 1) * UNITS[unit] * 1000;
    this.nameOf = { d: (at) => at.slice(0, 8), h: (at) => at.slice(0, 8) + at.slice(9, 11) }[granularity];
    this.nameOf ??= (at) => at.slice(0, 15);
    this.rate = -Math.expm1(Math.log1p(-error_rate) / slices);
    this.usual = choose(capacity, this.rate * (grow ? partShare(0) : 1));
    const [held, bits, hashes] = this.usual.split(":").map(Number);
    if (held !== capacity || "wsmin".includes(granularity)) throw new Error("such filters are left to Python");
    granularity = number ? `${this.length / 1000}s` : granularity;
    const stored = { layout: 2, hash: "mmh3_x64_128", bits, hashes, capacity, granularity, slices, tz: "UTC", shards: 1, grow, error_rate };
    this.stored = JSON.stringify(stored);
    Object.assign(this, { slices, capacity, grow });
    this.#redis = redis;
    this.#stem = `{${name}${/:[0-9]+(\.[0-9]+)?:*$/.test(name) ? ":" : ""}`;
  }

  async add(item) { return (await this.addMany([item]))[0]; } // true: new
  async contains(item) { return (await this.containsMany([item]))[0]; } // true: seen
  addMany(items) { return this.#inBatches(items, true); }
  containsMany(items) { return this.#inBatches(items, false); }

  live(now) { // the labels of the live slices, newest first; when the current one begins, ends, and leaves the window (ms)
    const begins = now - (now % this.length);
    const starts = Array.from({ length: this.slices }, (_, age) => new Date(begins - age * this.length));
    const labels = starts.map((start) => this.nameOf(start.toISOString().replace(/[-:]/g, "")));
    return { labels, times: [begins, begins + this.length, begins + this.slices * this.length] };
  }
  layoutOf(text) { // the parts of the slices that the layout names, by label
    const entries = text.split(";").slice(1).map((entry) => entry.split("=")); // after the generation
    return new Map(entries.map(([label, parts]) => [label, parts.split(",")]));
  }
  textOf(before, layout, live) { // of the same generation
    const entries = [...layout].filter(([label]) => label >= live.at(-1)).sort();
    return [before.split(";")[0], ...entries.map(([label, parts]) => `${label}=${parts.join(",")}`)].join(";");
  }
  part(level, number) { // the number-th part of a slice, with 2**level times the usual capacity
    return level || number ? choose(this.capacity * 2 ** level, this.rate * partShare(number)) : this.usual;
  }
  grown(text, live, label = live[0]) { // the layout with one more part for a slice
    const layout = this.layoutOf(text), parts = layout.get(label) ?? [this.usual];
    for (const later of live) if (later > label && !layout.has(later)) layout.set(later, [this.usual]);
    const level = 32 - Math.clz32(Math.floor(parts.at(-1).split(":")[0] / this.capacity));
    return this.textOf(text, layout.set(label, [...parts, this.part(level, parts.length)]), live);
  }
  begun(text, live, items) { // the layout with a current slice that begins with room for the items
    const level = this.grow ? 32 - Math.clz32(Math.max(0, Math.ceil(items / this.capacity) - 1)) : 0;
    return this.textOf(text, this.layoutOf(text).set(live[0], [this.part(level, 0)]), live);
  }
  #parts(layout, labels) { // newest first: key, capacity, bits and hashes of each
    return labels.flatMap((label) => (layout.get(label) ?? [this.usual]).map((part, number) =>
      [`${this.#stem}}:${label}${number ? `:${number}` : ""}`, ...part.split(":").map(Number)]).reverse());
  }

  async #inBatches(items, adds) {
    const digests = items.map(digestOf), answers = [];
    while (answers.length < digests.length) {
      const parts = this.#parts(this.layoutOf(this.#layout), this.live(this.#now()).labels);
      const cost = parts.length + 5 + Math.floor(parts[0][3] / 8);
      const some = digests.slice(answers.length, answers.length + Math.max(1, Math.floor(LOOKS_PER_CALL / cost)));
      for (const answer of await this.#batch(some, adds)) answers.push(answer === "1");
    }
    return answers;
  }

  async #batch(digests, adds) { // an answer to each item, or only to the first ones: the current part has become full
    const lane = adds ? (this.#lanes.pop() ?? { name: `${this.#client}:${this.#lanesMade++}`, number: 0 }) : null;
    if (lane) lane.number++;
    for (let corrections = 0; corrections <= MAX_CORRECTIONS; corrections++) {
      const text = this.#layout, layout = this.layoutOf(text), { labels, times } = this.live(this.#now());
      if (adds && (await this.#begins(layout, labels, times))) continue;
      const parts = this.#parts(layout, labels), rows = Math.max(...parts.map(([, , , hashes]) => hashes));
      const sizes = parts.map(([, , bits, hashes]) => `${bits / (256 * hashes)}:${hashes}:1`).join(" ");
      const keys = [`${this.#stem}}:config`, `${this.#stem}}:layout`], slices = parts.map(([key]) => key);
      const items = Buffer.concat(digests.map((digest) => packed(digest, rows)));
      const grown = this.grow ? this.grown(text, labels) : "";
      const answers = await (adds
        ? this.#call(ADD, [`${this.#stem}}:lane:${lane.name}`, ...keys, `${this.#stem}}:parts`, ...slices],
          [lane.number, this.stored, ...times, LANE_TTL, 1, text, grown, parts[0][1], sizes, items])
        : this.#call(CONTAINS, [...keys, ...slices], [this.stored, times[0], times[1], 1, text, sizes, items]));
      if (answers === undefined) continue;
      if (lane) this.#lanes.push(lane); // not after an error: a late copy of the call may still arrive
      return answers;
    }
    throw new Error("the server has corrected the call too often");
  }

  async #begins(layout, labels, times) { // begins a slice that comes after one that has grown; true: look again
    const last = labels.slice(1).find((label) => layout.has(label)), before = this.#layout;
    if (layout.has(labels[0]) || !last) return false;
    const counts = this.#parts(layout, [last]).map(([key]) => this.#redis.call("BITFIELD_RO", key, "GET", "u48", 0));
    const items = (await Promise.all(counts)).flat().reduce((sum, count) => sum + count);
    const keys = [`${this.#stem}}:config`, `${this.#stem}}:layout`, `${this.#stem}}:${labels[0]}`];
    const layouts = [before, this.begun(before, labels, items), this.grown(before, labels)];
    await this.#call(BEGIN_SLICE, keys, [this.stored, ...layouts, ...times]);
    return true;
  }

  #now() { return Date.now() + this.#ahead; }

  async #call({ sha, text }, keys, args) { // the answers; undefined: the clock or the layout was corrected
    const words = [keys.length, ...keys, ...args];
    const [status, payload] = await this.#redis.call("EVALSHA", sha, ...words).catch((error) => {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return this.#redis.call("EVAL", text, ...words);
    });
    if (status === 0) return payload;
    if (status === 1) this.#ahead = payload - Date.now();
    else if (status === 5) this.#layout = payload;
    else throw new Error(`${{ 2: "stored with other parameters", 6: "full" }[status] ?? `status ${status}`}: ${payload}`);
  }
}
