// SHA-256 and the roots of docs/commitments.md, sections 1 to 4. Browsers do not give pages from files WebCrypto
// everywhere, so the page has a SHA-256 of its own, which `selfTest` tries on the examples of FIPS 180-4.

const K = Uint32Array.from(constants(64, 32).map(Number));
const START = Uint32Array.from(constants(8, 32, 2).map(Number));

/** The first `bits` bits of the fractional parts of the roots of the first primes (FIPS 180-4, 4.2 and 5.3). */
export function constants(count, bits, degree = 3) {
  const found = [];
  for (let n = 2n; found.length < count; n++) {
    let prime = true;
    for (let d = 2n; d * d <= n; d++) {
      prime = prime && n % d !== 0n;
    }
    if (prime) {
      found.push(BigInt.asUintN(bits, root(n << BigInt(degree * bits), degree)));
    }
  }
  return found;
}

/** The greatest integer whose power is at most `n`. */
function root(n, degree) {
  let low = 0n;
  let high = 1n << 80n;
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** BigInt(degree) <= n) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

const W = new Uint32Array(64);
const PAD = new Uint8Array(128);
const SWAP = new Uint32Array(8);

/** One block of 64 bytes. */
function block(state, bytes, at) {
  for (let t = 0, i = at; t < 16; t++, i += 4) {
    W[t] = (bytes[i] << 24) | (bytes[i + 1] << 16) | (bytes[i + 2] << 8) | bytes[i + 3];
  }
  for (let t = 16; t < 64; t++) {
    const x = W[t - 15];
    const y = W[t - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    W[t] = (W[t - 16] + s0 + W[t - 7] + s1) | 0;
  }
  let a = state[0] | 0, b = state[1] | 0, c = state[2] | 0, d = state[3] | 0;
  let e = state[4] | 0, f = state[5] | 0, g = state[6] | 0, h = state[7] | 0;
  for (let t = 0; t < 64; t++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const one = (h + s1 + ((e & f) ^ (~e & g)) + K[t] + W[t]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
  }
  state[0] += a; state[1] += b; state[2] += c; state[3] += d;
  state[4] += e; state[5] += f; state[6] += g; state[7] += h;
}

/** SHA-256 of bytes behind one byte, or of bytes alone (`first` < 0). */
function digest(first, bytes) {
  const state = START.slice();
  const length = bytes.length + (first < 0 ? 0 : 1);
  let at = 0;
  if (first >= 0 && bytes.length >= 63) {
    PAD[0] = first;
    PAD.set(bytes.subarray(0, 63), 1);
    block(state, PAD, 0);
    at = 63;
  }
  for (; at + 64 <= bytes.length; at += 64) {
    block(state, bytes, at);
  }
  PAD.fill(0);
  const lead = first >= 0 && bytes.length < 63 ? 1 : 0;
  if (lead) {
    PAD[0] = first;
  }
  const rest = bytes.length - at;
  PAD.set(bytes.subarray(at), lead);
  PAD[lead + rest] = 0x80;
  const end = lead + rest + 9 <= 64 ? 64 : 128;
  const view = new DataView(PAD.buffer);
  view.setUint32(end - 8, Math.floor(length / 2 ** 29));
  view.setUint32(end - 4, (length << 3) >>> 0);
  for (let i = 0; i < end; i += 64) {
    block(state, PAD, i);
  }
  const found = new Uint8Array(32);
  const out = new DataView(found.buffer);
  state.forEach((word, i) => out.setUint32(4 * i, word));
  return found;
}

/** SHA-256 of bytes. */
export function sha256(bytes) {
  return digest(-1, bytes);
}

/** Bytes one after the other. */
export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Bytes in hexadecimal. */
export function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whether two arrays of bytes are equal. */
export function same(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

const encoder = new TextEncoder();

/** ASCII, and the zero byte that ends a tag. */
export function tag(name) {
  return encoder.encode(`cvm1:${name}\0`);
}

/** An integer of `width` bytes, little-endian, in two's complement. */
export function number(value, width) {
  let rest = BigInt.asUintN(8 * width, BigInt(value));
  const found = new Uint8Array(width);
  for (let i = 0; i < width; i++) {
    found[i] = Number(rest & 255n);
    rest >>= 8n;
  }
  return found;
}

export const u8 = (value) => number(value, 1);
export const u32 = (value) => number(value, 4);
export const u64 = (value) => number(value, 8);

export function text(value) {
  const bytes = encoder.encode(value);
  return joined(u32(bytes.length), bytes);
}

export function shape(extents) {
  return joined(u8(extents.length), ...extents.map(u64));
}

export function list(items) {
  return joined(u32(items.length), ...items);
}

/** The root of the tree of RFC 6962 over leaves. */
export function merkle(leaves) {
  if (leaves.length === 0) {
    return sha256(new Uint8Array(0));
  }
  let level = leaves.map((leaf) => digest(0, leaf));
  while (level.length > 1) {
    const above = [];
    for (let i = 0; i + 1 < level.length; i += 2) {
      above.push(digest(1, joined(level[i], level[i + 1])));
    }
    if (level.length % 2) {
      above.push(level[level.length - 1]);
    }
    level = above;
  }
  return level[0];
}

export function listRoot(records) {
  return sha256(joined(tag("list"), u64(records.length), merkle(records)));
}

/** The root of a tensor: its data are an Int32Array, or a BigInt64Array for a parameter. */
export function tensorRoot(extents, data) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const leaves = [];
  for (let at = 0; at < bytes.length; at += 1024) {
    leaves.push(bytes.subarray(at, Math.min(at + 1024, bytes.length)));
  }
  const kind = data instanceof BigInt64Array ? 2 : 1;
  return sha256(joined(tag("tensor"), u8(kind), shape(extents), u64(bytes.length), merkle(leaves)));
}

/** Throws if the hash is wrong in this browser. Typed arrays have the byte order of the machine, which must be little. */
export function selfTest() {
  const cases = {
    "": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    abc: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq:
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
  };
  for (const [message, expected] of Object.entries(cases)) {
    if (hex(sha256(encoder.encode(message))) !== expected) {
      throw new Error("SHA-256 gives a wrong hash in this browser");
    }
  }
  SWAP[0] = 1;
  if (new Uint8Array(SWAP.buffer)[0] !== 1) {
    throw new Error("this page needs a machine that stores the low byte of a number first");
  }
}
