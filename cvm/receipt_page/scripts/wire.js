// The msgpack of cvm's files (docs/commitments.md, section 7): integers, texts, binaries, booleans, arrays and maps.

/** Bytes that are no file of the expected kind. */
export class WireError extends Error {}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads one value after the other; a Map stands for a map, a Uint8Array for a binary, large integers are BigInts. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  skip(count) {
    const at = this.at;
    if (at + count > this.bytes.length) {
      throw new WireError("the bytes end early");
    }
    this.at += count;
    return at;
  }

  binary(count) {
    const at = this.skip(count);
    return this.bytes.subarray(at, at + count);
  }

  text(count) {
    try {
      return utf8.decode(this.binary(count));
    } catch {
      throw new WireError("a text is no UTF-8");
    }
  }

  unsigned(width) {
    const at = this.skip(width);
    if (width === 8) {
      return narrowed(this.view.getBigUint64(at));
    }
    return width === 1 ? this.view.getUint8(at) : width === 2 ? this.view.getUint16(at) : this.view.getUint32(at);
  }

  signed(width) {
    const at = this.skip(width);
    if (width === 8) {
      return narrowed(this.view.getBigInt64(at));
    }
    return width === 1 ? this.view.getInt8(at) : width === 2 ? this.view.getInt16(at) : this.view.getInt32(at);
  }

  array(count, depth) {
    return Array.from({ length: this.possible(count) }, () => this.value(depth + 1));
  }

  map(count, depth) {
    const found = new Map();
    for (let left = this.possible(count); left > 0; left--) {
      const key = this.value(depth + 1);
      if (typeof key !== "string" || found.has(key)) {
        throw new WireError("the keys of a map are different texts");
      }
      found.set(key, this.value(depth + 1));
    }
    return found;
  }

  possible(count) {
    if (count > this.bytes.length - this.at) {
      throw new WireError("the bytes end early");
    }
    return count;
  }

  value(depth = 0) {
    if (depth > 64) {
      throw new WireError("values are nested more than 64 deep");
    }
    const tag = this.unsigned(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.map(tag & 15, depth);
    if (tag < 0xa0) return this.array(tag & 15, depth);
    if (tag < 0xc0) return this.text(tag & 31);
    if (tag >= 0xe0) return tag - 256;
    switch (tag) {
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return this.binary(this.unsigned(1 << (tag - 0xc4)));
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return this.unsigned(1 << (tag - 0xcc));
      case 0xd0: case 0xd1: case 0xd2: case 0xd3: return this.signed(1 << (tag - 0xd0));
      case 0xd9: case 0xda: case 0xdb: return this.text(this.unsigned(1 << (tag - 0xd9)));
      case 0xdc: case 0xdd: return this.array(this.unsigned(2 << (tag - 0xdc)), depth);
      case 0xde: case 0xdf: return this.map(this.unsigned(2 << (tag - 0xde)), depth);
      default: throw new WireError(`there are no values that begin with ${tag}`);
    }
  }
}

function narrowed(value) {
  return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

/** The value that bytes encode. Throws a WireError for other bytes. */
export function unpack(bytes) {
  const reader = new Reader(bytes);
  const found = reader.value();
  if (reader.at !== bytes.length) {
    throw new WireError("bytes are left over");
  }
  return found;
}

/** The canonical bytes of a value: shortest forms, maps sorted by the bytes of their keys. */
export function pack(value) {
  const parts = [];
  write(value, parts);
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const encoder = new TextEncoder();

function write(value, parts) {
  if (typeof value === "boolean") {
    parts.push(Uint8Array.of(value ? 0xc3 : 0xc2));
  } else if (typeof value === "number" || typeof value === "bigint") {
    parts.push(integer(BigInt(value)));
  } else if (typeof value === "string") {
    const bytes = encoder.encode(value);
    parts.push(headed(bytes.length, 0xa0, 31, [0xd9, 0xda, 0xdb], 1), bytes);
  } else if (value instanceof Uint8Array) {
    parts.push(headed(value.length, 0, -1, [0xc4, 0xc5, 0xc6], 1), value);
  } else if (Array.isArray(value)) {
    parts.push(headed(value.length, 0x90, 15, [0xdc, 0xdd], 2));
    value.forEach((item) => write(item, parts));
  } else {
    const entries = [...value].map(([key, item]) => [encoder.encode(key), key, item]);
    entries.sort(([a], [b]) => compared(a, b));
    parts.push(headed(entries.length, 0x80, 15, [0xde, 0xdf], 2));
    for (const [, key, item] of entries) {
      write(key, parts);
      write(item, parts);
    }
  }
}

/** A length: inside the first byte up to `most`, else behind the first tag whose width it fits. */
function headed(count, small, most, tags, width) {
  return count <= most ? Uint8Array.of(small | count) : wide(BigInt(count), tags, width);
}

function wide(value, tags, first) {
  for (let index = 0; ; index++) {
    const width = first << index;
    if (index === tags.length - 1 || value < 1n << BigInt(8 * width)) {
      const bytes = new Uint8Array(1 + width);
      bytes[0] = tags[index];
      for (let i = 0; i < width; i++) {
        bytes[width - i] = Number((value >> BigInt(8 * i)) & 255n);
      }
      return bytes;
    }
  }
}

function integer(value) {
  if (value >= 0n) {
    return value < 128n ? Uint8Array.of(Number(value)) : wide(value, [0xcc, 0xcd, 0xce, 0xcf], 1);
  }
  if (value >= -32n) {
    return Uint8Array.of(Number(256n + value));
  }
  const width = [1, 2, 4, 8].find((bytes) => value >= -(1n << BigInt(8 * bytes - 1)));
  return wide(BigInt.asUintN(8 * width, value), [{ 1: 0xd0, 2: 0xd1, 4: 0xd2, 8: 0xd3 }[width]], width);
}

function compared(a, b) {
  const count = Math.min(a.length, b.length);
  for (let i = 0; i < count; i++) {
    if (a[i] !== b[i]) {
      return a[i] - b[i];
    }
  }
  return a.length - b.length;
}
