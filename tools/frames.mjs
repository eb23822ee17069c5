// Frames between processes: a length (u32, little-endian) and that many bytes of msgpack.

/** The frames of a stream. */
export async function* frames(stream) {
  let held = Buffer.alloc(0);
  let parts = [];
  let size = 0;
  for await (const part of stream) {
    parts.push(part);
    size += part.length;
    if (held.length >= 4 && size < 4 + held.readUInt32LE(0)) {
      continue; // a long frame is joined once, when all of it is there
    }
    held = Buffer.concat([held, ...parts.splice(0)].filter((one) => one.length));
    size = held.length;
    while (held.length >= 4 && held.length >= 4 + held.readUInt32LE(0)) {
      const end = 4 + held.readUInt32LE(0);
      yield new Uint8Array(held.subarray(4, end));
      held = held.subarray(end);
      size = held.length;
    }
  }
}

/** Bytes as a frame. */
export function framed(bytes) {
  const head = Buffer.alloc(4);
  head.writeUInt32LE(bytes.length);
  return Buffer.concat([head, bytes]);
}
