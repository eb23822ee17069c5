// Ed25519 (RFC 8032, section 5.1) with the rules of docs/commitments.md, section 8: for the few signatures of a receipt.

import { constants, same } from "./hashing.js";

const P = 2n ** 255n - 19n;
const L = 2n ** 252n + 27742317777372353535851937790883648493n;
const mod = (x, m = P) => ((x % m) + m) % m;

function power(base, exponent) {
  let result = 1n;
  for (let b = mod(base), e = exponent; e > 0n; e >>= 1n) {
    if (e & 1n) result = (result * b) % P;
    b = (b * b) % P;
  }
  return result;
}

const inverse = (x) => power(x, P - 2n);
const D = mod(-121665n * inverse(121666n));

function little(bytes) {
  return bytes.reduceRight((total, byte) => (total << 8n) | BigInt(byte), 0n);
}

function bytesOf(value) {
  return Uint8Array.from({ length: 32 }, (_, i) => Number((value >> BigInt(8 * i)) & 255n));
}

/** The point that 32 bytes stand for, or null. */
function point(bytes) {
  const y = little(bytes) & (2n ** 255n - 1n);
  const odd = bytes[31] >> 7;
  const square = mod((y * y - 1n) * inverse(mod(D * y * y + 1n)));
  let x = power(square, (P + 3n) / 8n);
  if (mod(x * x) !== square) {
    x = mod(x * power(2n, (P - 1n) / 4n));
  }
  if (y >= P || mod(x * x) !== square || (x === 0n && odd)) {
    return null;
  }
  return [Number(x & 1n) === odd ? x : P - x, y];
}

function plus([p, q], [r, s]) {
  const e = mod(D * p * r * q * s);
  const both = inverse(mod(1n - e * e));
  return [mod(mod((p * s + q * r) * (1n - e)) * both), mod(mod((q * s + p * r) * (1n + e)) * both)];
}

function times(n, a) {
  let total = [0n, 1n];
  for (const bit of n.toString(2)) {
    total = plus(total, total);
    if (bit === "1") total = plus(total, a);
  }
  return total;
}

const K = constants(80, 64);
const START = constants(8, 64, 2);
const wrap = (x) => BigInt.asUintN(64, x);
const turned = (x, n) => wrap((x >> BigInt(n)) | (x << BigInt(64 - n)));

/** SHA-512 of bytes. */
export function sha512(bytes) {
  const blocks = Math.ceil((bytes.length + 17) / 128);
  const padded = new Uint8Array(128 * blocks);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(8 * bytes.length));
  let state = START;
  for (let at = 0; at < padded.length; at += 128) {
    const w = Array.from({ length: 16 }, (_, t) => view.getBigUint64(at + 8 * t));
    for (let t = 16; t < 80; t++) {
      const x = w[t - 15];
      const y = w[t - 2];
      const s0 = turned(x, 1) ^ turned(x, 8) ^ (x >> 7n);
      const s1 = turned(y, 19) ^ turned(y, 61) ^ (y >> 6n);
      w.push(wrap(w[t - 16] + s0 + w[t - 7] + s1));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let t = 0; t < 80; t++) {
      const s1 = turned(e, 14) ^ turned(e, 18) ^ turned(e, 41);
      const one = wrap(h + s1 + ((e & f) ^ (wrap(~e) & g)) + K[t] + w[t]);
      const s0 = turned(a, 28) ^ turned(a, 34) ^ turned(a, 39);
      const two = wrap(s0 + ((a & b) ^ (a & c) ^ (b & c)));
      [h, g, f, e, d, c, b, a] = [g, f, e, wrap(d + one), c, b, a, wrap(one + two)];
    }
    state = [a, b, c, d, e, f, g, h].map((x, i) => wrap(x + state[i]));
  }
  const found = new DataView(new ArrayBuffer(64));
  state.forEach((word, i) => found.setBigUint64(8 * i, word));
  return new Uint8Array(found.buffer);
}

/** Whether a signature of a message by a key is genuine. */
export function genuine(key, message, signature) {
  const base = point(bytesOf(mod(4n * inverse(5n))));
  const a = point(key);
  const s = little(signature.subarray(32));
  if (a === null || s >= L) {
    return false;
  }
  const [x8, y8] = times(8n, a);
  if (x8 === 0n && y8 === 1n) {
    return false;
  }
  const whole = new Uint8Array(64 + message.length);
  whole.set(signature.subarray(0, 32));
  whole.set(key, 32);
  whole.set(message, 64);
  const k = little(sha512(whole)) % L;
  const [x, y] = plus(times(s, base), times(k, [P - a[0], a[1]]));
  return same(bytesOf(y | ((x & 1n) << 255n)), signature.subarray(0, 32));
}
