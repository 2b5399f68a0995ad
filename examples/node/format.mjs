// What follows from an item, and from a filter's parameters, alone: docs/format.md.
import murmur from "murmurhash3js-revisited";

const MAX_BITS = 2 ** 28;

// From an item to its bits.
const mmh128 = (data, seed) => {
  const hex = Buffer.from(murmur.x64.hash128(data, seed), "hex");
  return Buffer.concat([hex.subarray(0, 8).reverse(), hex.subarray(8).reverse()]);
};
export const digestOf = (item) => mmh128(Buffer.from(item), 0);
export const columnsOf = (digest, rows) =>
  Buffer.concat(Array.from({ length: Math.ceil(rows / 16) }, (_, seed) => (seed ? mmh128(digest, seed) : digest)));
const scaled = (digest, seed, count) => Math.floor((murmur.x86.hash32(digest, seed) * count) / 2 ** 32);
export const blockOf = (digest, blocks) => scaled(digest, 0, blocks);
export const shardOf = (digest, shards) => scaled(digest, 1, shards);
export const packed = (digest, sizes) => { // its columns; where its block begins in parts of each size
  const columns = columnsOf(digest, Math.max(...sizes.map(({ hashes }) => hashes))), starts = Buffer.alloc(4 * sizes.length);
  sizes.forEach(({ blocks, hashes }, i) => starts.writeUInt32LE(8 + blockOf(digest, blocks) * hashes * 32, 4 * i));
  return Buffer.concat([columns, starts]);
};

// The sizes of parts. A part is its capacity, bits and hashes, as text: "1000:28672:14".
export const partShare = (number) => (number ? 0.1 * 0.8 ** (number - 1) : 0.5);
function rateOfLoad(load, hashes) {
  let j = Math.max(1, Math.floor(load - 10 * Math.sqrt(load))), log = j * Math.log(load) - load, total = 0;
  for (let i = 2; i <= j; i++) log -= Math.log(i);
  for (let poisson = Math.exp(log); ; poisson *= load / ++j) {
    const term = poisson * (1 - (1 - 1 / 256) ** j) ** hashes;
    total += term;
    if (j > load && term <= total * 1e-17) return total;
  }
}
const loads = {}; // the items of a block at which it has a rate, by rate and hashes
function loadAt(rate, hashes) {
  let high = 1;
  while (high < 2 ** 14 && rateOfLoad(high, hashes) <= rate) high *= 2;
  while (rateOfLoad(high / 2, hashes) > rate) high /= 2;
  let low = high / 2;
  for (let i = 0; i < 20; i++) {
    const middle = (low + high) / 2;
    if (rateOfLoad(middle, hashes) <= rate) low = middle;
    else high = middle;
  }
  return low;
}
export const FIRST_CAPACITY = 10_000; // of a filter without a capacity
export function capacityAfter(items) { // of a slice that follows one of these items
  const needed = Math.max(1000, items + 2 * Math.sqrt(items));
  return Math.round(1000 * 2 ** (Math.ceil(16 * Math.log2(needed / 1000)) / 16));
}

export function choose(capacity, rate) {
  let hashes = Math.max(1, Math.round(0.82 * Math.log2(1 / rate)));
  hashes = hashes > 16 && hashes < 21 ? 16 : Math.min(hashes, 64);
  const load = (loads[[rate, hashes]] ??= loadAt(rate, hashes)), blockBits = hashes * 256;
  let blocks = Math.ceil(capacity / load);
  if (blocks * blockBits > MAX_BITS) capacity = Math.floor((blocks = Math.ceil(MAX_BITS / blockBits)) * load);
  return `${capacity}:${blocks * blockBits}:${hashes}`;
}
