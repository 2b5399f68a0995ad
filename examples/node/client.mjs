// A client of tbloom's filters, written from docs/format.md: what Python has added is seen here, and the reverse. It adds to
// filters of one shard, with slices of an hour or a day in UTC, or of a fixed length; and it looks items up.
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { blocksIn, capacityAfter, choose, columnBytes, digestOf, FIRST_CAPACITY, packed, partShare } from "./format.mjs";

const LOOKS_PER_CALL = 1300, MAX_CORRECTIONS = 16;
const UNITS = { s: 1, min: 60, h: 3600, d: 86_400, w: 604_800 };

// A script is its file, with the files that it includes in front of the line that names them, unless they have come before.
function textOf(path, come = new Set(["none"])) {
  const text = readFileSync(new URL(`../../lua/${path}.lua`, import.meta.url), "utf8");
  return text.replace(/^-- Includes +(.*)$/gm, (line, names) => {
    const files = names.split(", ").filter((name) => !come.has(name));
    files.forEach((name) => come.add(name));
    return [...files.map((name) => textOf(`shared/${name}`, come)), line].join("");
  });
}
const [ADD, CONTAINS, SET_LAYOUT, OPEN] = ["add", "contains", "set_layout", "open"].map((name) => {
  const text = textOf(`bloom/${name}`);
  return { text, sha: createHash("sha1").update(text).digest("hex") };
});

const bytes = (size, number) => { // the highest first
  const packed = Buffer.alloc(size);
  packed.writeUIntBE(number, 0, size);
  return packed;
};
const token = ({ name, number }) => `${number.toString(16)} ${name}`;
function constants(times, capacity, size, version, field, oldest = "", groups = []) { // lua/shared/header.lua
  const numbers = [...times, capacity, size].map((number) => [bytes(1, Math.floor(number / 2 ** 48)), bytes(6, number % 2 ** 48)]);
  const sizes = groups.flatMap(({ hashes, keys }) => [bytes(1, hashes), bytes(2, keys.length)]);
  return Buffer.concat([...numbers.flat(), bytes(1, columnBytes(groups)), Buffer.from(`${version} ${field} ${oldest} `), ...sizes]);
}

export class TimeBloom {
  #redis; #stem; #lanes = []; #lanesMade = 0; #client = randomBytes(6).toString("base64url"); #ahead = 0; #layout = "";

  constructor(redis, name, { granularity = "d", slices = 7, capacity = null, error_rate = 1e-4, grow = true } = {}) {
    const [, number, unit] = /^(\d*)(s|min|h|d|w)$/.exec(granularity);
    this.length = (number || 1) * UNITS[unit] * 1000;
    this.nameOf = { d: (at) => at.slice(0, 8), h: (at) => at.slice(0, 8) + at.slice(9, 11) }[granularity];
    this.nameOf ??= (at) => at.slice(0, 15);
    this.rate = -Math.expm1(Math.log1p(-error_rate) / slices);
    this.first = capacity ?? FIRST_CAPACITY;
    this.default = choose(this.first, this.rate * (grow ? partShare(0) : 1));
    const [held, bits, hashes] = this.default.split(":").map(Number);
    if (held !== this.first || (capacity === null && !grow) || "wsmin".includes(granularity)) throw new Error("such filters are left to Python");
    granularity = number ? `${this.length / 1000}s` : granularity;
    const stored = { layout: 4, hash: "mmh3_x64_128", bits, hashes, capacity, granularity, slices, tz: "UTC", shards: 1, grow, error_rate };
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
    const entries = text.split(";").slice(1).map((entry) => entry.split("=")); // after the version
    return new Map(entries.map(([label, parts]) => [label, parts.split(",")]));
  }
  grown(layout, live, label = live[0]) { // the layout's entries once a slice has one more part
    const parts = layout.get(label) ?? [this.default];
    return this.withParts(layout, live, label, [...parts, this.next(parts)]);
  }
  withParts(layout, live, label, parts) { // its entries with these parts; later slices get entries, those that have left lose theirs
    const entries = new Map(layout).set(label, parts);
    for (const later of live.slice(0, live.indexOf(label))) entries.set(later, layout.get(later) ?? [this.default]);
    const kept = [...entries].filter(([of]) => of >= live.at(-1)).sort(([a], [b]) => (a < b ? -1 : 1));
    return kept.map(([of, parts]) => `${of}=${parts.join(",")}`).join(";");
  }
  next(parts) { // the part that a slice with these parts grows by
    const [first, last] = [parts[0], parts.at(-1)].map((part) => part.split(":")[0]), number = parts.length;
    const capacity = parts[0] === this.default ? 2 * last : Math.ceil(first / 8) * 2 ** (number - 1);
    return choose(capacity, this.rate * partShare(number));
  }
  beginning(items) { // the first part of a slice, after one that held these items
    if (!items || !this.grow || (this.capacity !== null && items <= this.first)) return this.default;
    return choose(capacityAfter(items), this.rate * partShare(0));
  }
  #groups(layout, labels) { // the parts by size, that of the current part first; the newest first of each size
    const groups = new Map();
    for (const label of labels)
      for (const [number, part] of [...(layout.get(label) ?? [this.default]).entries()].reverse()) {
        const [capacity, bits, hashes] = part.split(":").map(Number), size = `${bits}:${hashes}`;
        if (!groups.has(size)) groups.set(size, { capacity, bits, hashes, blocks: blocksIn(bits, hashes), keys: [] });
        groups.get(size).keys.push(`${this.#stem}}:${label}${number ? `:${number}` : ""}`);
      }
    return [...groups.values()];
  }

  async #inBatches(items, adds) {
    const digests = items.map(digestOf), answers = [];
    while (answers.length < digests.length) {
      const groups = this.#groups(this.layoutOf(this.#layout), this.live(this.#now()).labels);
      const parts = groups.reduce((sum, { keys }) => sum + keys.length, 0);
      const most = Math.max(1, Math.floor(LOOKS_PER_CALL / (parts + 5 + Math.floor(groups[0].hashes / 8))));
      const some = digests.slice(answers.length, answers.length + most);
      for (const answer of await this.#batch(some, adds)) answers.push(answer === "1");
    }
    return answers;
  }

  async #batch(digests, adds) { // an answer to each item, or only to the first ones: the current part has become full
    const lane = adds ? (this.#lanes.pop() ?? { name: `L${this.#client}${this.#lanesMade++}`, number: 0 }) : null;
    if (lane) lane.number++;
    for (let corrections = 0; corrections <= MAX_CORRECTIONS; corrections++) {
      const version = this.#layout.split(";")[0], layout = this.layoutOf(this.#layout), { labels, times } = this.live(this.#now());
      if (!version && (await this.#open(adds, times))) continue;
      if (adds && (await this.#begins(version, layout, labels, times))) continue;
      const groups = this.#groups(layout, labels), [{ capacity, bits }] = groups;
      const keys = [...this.#own(), ...groups.flatMap(({ keys }) => keys)];
      const items = Buffer.concat(digests.map((digest) => packed(digest, groups)));
      const known = (layout.get(labels[0]) ?? [this.default]).length, field = known > 1 ? `${labels[0]}:${known - 1}` : labels[0];
      const answers = await (adds
        ? this.#call(ADD, keys, [token(lane), constants(times, capacity, bits / 8, version, field, labels.at(-1), groups), items])
        : this.#call(CONTAINS, keys, [constants(times, 0, 0, version, "", "", groups), items]));
      if (answers === undefined) continue;
      if (lane) this.#lanes.push(lane); // not after an error: a late copy of the call may still arrive
      if (adds && answers.length < digests.length) { // the part is full
        if (!this.grow) throw new Error("the slice is full");
        await this.#call(SET_LAYOUT, this.#own(), [constants(times, capacity, 0, version, field), this.grown(layout, labels)]);
      }
      return answers;
    }
    throw new Error("the server has corrected the call too often");
  }

  #own() { return [`${this.#stem}}:config`, `${this.#stem}}:state`]; }

  async #open(store, times) { // learns the layout; true: look again
    await this.#call(OPEN, this.#own(), [this.stored, constants(times, 0, 0, "", ""), store ? 1 : 0]);
    return Boolean(this.#layout) || store;
  }

  async #begins(version, layout, labels, times) { // begins a slice that needs an entry in the layout; true: look again
    const last = labels.slice(1).find((label) => layout.has(label));
    if (layout.has(labels[0]) || !(last || (this.capacity === null && version))) return false;
    const fields = last ? layout.get(last).map((_, number) => (number ? `${last}:${number}` : last)) : ["none"];
    const counts = await this.#redis.call("HMGET", `${this.#stem}}:state`, ...fields);
    const items = counts.reduce((sum, count) => sum + Number(count), 0);
    const hasBegun = await this.#redis.call("EXISTS", `${this.#stem}}:${labels[0]}`); // before the server's clock was set back
    const entries = hasBegun ? this.grown(layout, labels) : this.withParts(layout, labels, labels[0], [this.beginning(items)]);
    await this.#call(SET_LAYOUT, this.#own(), [constants(times, 0, 0, version, ""), entries]);
    return true;
  }

  #now() { return Date.now() + this.#ahead; }

  async #call({ sha, text }, keys, args) { // the answers; undefined: the clock or the layout was corrected
    const words = [keys.length, ...keys, ...args];
    const [status, payload, parameters] = await this.#redis.call("EVALSHA", sha, ...words).catch((error) => {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return this.#redis.call("EVAL", text, ...words);
    });
    if (status === 0) return payload;
    if (status === 1) this.#ahead = payload - Date.now();
    else if (status === 5 && [undefined, this.stored].includes(parameters)) this.#layout = payload;
    else if (status === 4) this.#layout = "";
    else throw new Error(`${{ 2: "stored with other parameters" }[status] ?? `status ${status}`}: ${payload}`);
  }
}
