// Reads a bitmap in the portable format, says its size, takes out its least id, adds 4,294,967,295, and writes it.
import { readFileSync } from "node:fs";
import roaring from "roaring-wasm";

await roaring.roaringLibraryInitialize();
const ids = roaring.RoaringBitmap32.deserialize(readFileSync(0), "portable");
console.error(ids.size);
ids.remove(ids.minimum());
ids.add(4294967295);
process.stdout.write(Buffer.from(ids.serialize("portable")));
