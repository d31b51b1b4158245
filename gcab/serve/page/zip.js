/** A zip made in the browser, of files as they are: photos are packed already (PKWARE's APPNOTE, section 4.3). */

const VERSION = 20;
const UTF8 = 0x0800; // names are UTF-8
const FIRST_DAY = 0x21; // 1 January 1980: when a photo was taken is nobody's business here
const REMAINDERS = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? 0xedb88320 ^ (rest >>> 1) : rest >>> 1;
  return rest;
});

/** @param {Uint8Array} bytes @returns {number} their CRC-32 */
function checksum(bytes) {
  let rest = 0xffffffff;
  for (const byte of bytes) rest = REMAINDERS[(rest ^ byte) & 255] ^ (rest >>> 8);
  return ~rest >>> 0;
}

/** @param {...[number, number]} fields how many bytes, and the number in them @returns {ArrayBuffer} */
function packed(...fields) {
  const view = new DataView(new ArrayBuffer(fields.reduce((size, [bytes]) => size + bytes, 0)));
  let place = 0;
  for (const [bytes, value] of fields) {
    if (bytes === 2) view.setUint16(place, value, true);
    else view.setUint32(place, value, true);
    place += bytes;
  }
  return view.buffer;
}

/** @param {{path: string, file: File}[]} entries @param {string} name of the zip @returns {Promise<File>} */
export async function zipOf(entries, name) {
  const [contents, directory] = [[], []];
  let offset = 0;
  for (const { path, file } of entries) {
    const label = new TextEncoder().encode(path);
    const sum = checksum(new Uint8Array(await file.arrayBuffer()));
    const about = /** @type {[number, number][]} */ ([
      [2, VERSION], [2, UTF8], [2, 0], [2, 0], [2, FIRST_DAY], [4, sum], [4, file.size], [4, file.size],
      [2, label.length], [2, 0],
    ]);
    contents.push(packed([4, 0x04034b50], ...about), label, file);
    directory.push(packed([4, 0x02014b50], [2, VERSION], ...about, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]), label);
    offset += 30 + label.length + file.size;
  }
  const size = directory.reduce((sum, part) => sum + part.byteLength, 0);
  const count = entries.length;
  const end = packed([4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, size], [4, offset], [2, 0]);
  return new File([...contents, ...directory, end], name, { type: "application/zip" });
}
