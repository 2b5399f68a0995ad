// What follows from an item, and from a filter's parameters, alone: docs/format.md.
import murmur from "murmurhash3js-revisited";

const MAX_BITS = 2 ** 26 - 2 ** 13; // of a part

// From an item to its bits.
const mmh128 = (data, seed) => {
  const hex = Buffer.from(murmur.x64.hash128(data, seed), "hex");
  return Buffer.concat([hex.subarray(0, 8).reverse(), hex.subarray(8).reverse()]);
};
export const digestOf = (item) => mmh128(Buffer.from(item), 0);
export const columnBytes = (sizes) => 32 * Math.ceil(Math.max(0, ...sizes.map(({ hashes }) => hashes)) / 16);
export const columnsOf = (digest, rows) =>
  Buffer.concat(Array.from({ length: Math.ceil(rows / 16) }, (_, seed) => (seed ? mmh128(digest, seed) : digest))).map((byte) => byte >> 2);
const scaled = (digest, seed, count) => Math.floor((murmur.x86.hash32(digest, seed) * count) / 2 ** 32);
export const blockOf = (digest, blocks) => scaled(digest, 0, blocks);
export const shardOf = (digest, shards) => scaled(digest, 1, shards);
export const rowsApart = (hashes) => Math.ceil(hashes / 2); // from the beginning of a block to that of the next one
export const blocksIn = (bits, hashes) => (bits / 64 - Math.floor(hashes / 2)) / rowsApart(hashes);
export const packed = (digest, sizes) => { // its columns; where its block begins in parts of each size
  const columns = [...columnsOf(digest, columnBytes(sizes) / 2)].flatMap((column) => [column >> 3, 128 >> (column & 7)]), starts = Buffer.alloc(4 * sizes.length);
  sizes.forEach(({ blocks, hashes }, i) => starts.writeUInt32LE(blockOf(digest, blocks) * rowsApart(hashes) * 8, 4 * i));
  return Buffer.concat([Buffer.from(columns), starts]);
};

// The sizes of parts. A part is its capacity, bits and hashes, as text: "1000:28672:14".
export const partShare = (number) => (number ? 0.1 * 0.8 ** (number - 1) : 0.5);
function rateOfLoad(load, hashes) {
  const deviation = 9 * Math.sqrt(load), least = Math.max(0, Math.floor(load - deviation));
  const most = Math.ceil(load + deviation) + hashes + 25, poisson = [], set = (items) => 1 - (63 / 64) ** items;
  let logarithm = 0, total = 0; // of j!
  for (let j = 0; j < most; logarithm += Math.log(++j)) poisson.push(Math.exp(j * Math.log(load) - load - logarithm));
  const halfSet = Array.from({ length: 2 * most }, (_, items) => set(items) ** Math.floor(hashes / 2));
  for (let b = least; b < most; b++) {
    let half = 0;
    for (let a = least; a < most; a++) half += poisson[a] * halfSet[a + b];
    total += poisson[b] * half * half * (hashes % 2 ? set(b) : 1);
  }
  return total;
}
const loads = {}; // the items of a block at which it has a rate, by rate and hashes
function loadAt(rate, hashes) {
  let high = 1;
  while (high < 2 ** 11 && rateOfLoad(high, hashes) <= rate) high *= 2;
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
  const hashes = Math.min(64, Math.max(1, 2 * Math.floor(0.36 * Math.log2(1 / rate) + 0.65)));
  const counted = (loads[[rate, hashes]] ??= loadAt(rate, hashes)) * (1 - rate);
  const bitsOf = (blocks) => (blocks * rowsApart(hashes) + Math.floor(hashes / 2)) * 64;
  let blocks = Math.ceil(capacity / counted);
  if (bitsOf(blocks) > MAX_BITS) {
    blocks = Math.floor((MAX_BITS / 64 - Math.floor(hashes / 2)) / rowsApart(hashes));
    capacity = Math.floor(blocks * counted);
  }
  return `${capacity}:${bitsOf(blocks)}:${hashes}`;
}
