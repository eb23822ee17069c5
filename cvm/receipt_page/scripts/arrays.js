// Arrays of .npy files as codes. Real numbers are quantised exactly: in fractions of integers of any size.

const KINDS = {
  "|b1": Uint8Array, "|i1": Int8Array, "|u1": Uint8Array, "<i2": Int16Array, "<u2": Uint16Array, "<i4": Int32Array,
  "<u4": Uint32Array, "<i8": BigInt64Array, "<u8": BigUint64Array, "<f4": Float32Array, "<f8": Float64Array,
};

/** The shape and the elements of a .npy file. */
export function readNpy(bytes) {
  if (bytes.length < 12 || String.fromCharCode(...bytes.subarray(1, 6)) !== "NUMPY" || bytes[0] !== 0x93) {
    throw new Error("expected a .npy file");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const short = bytes[6] === 1;
  const start = short ? 10 : 12;
  const end = start + (short ? view.getUint16(8, true) : view.getUint32(8, true));
  const head = new TextDecoder("latin1").decode(bytes.subarray(start, end));
  const kind = KINDS[/'descr':\s*'([^']*)'/.exec(head)?.[1]];
  const extents = /'shape':\s*\(([0-9, ]*)\)/.exec(head)?.[1];
  if (kind === undefined || extents === undefined || !/'fortran_order':\s*False/.test(head)) {
    throw new Error("expected an array of integers or of 32- or 64-bit floats, in row-major order, low bytes first");
  }
  const shape = extents.split(",").filter((word) => word.trim()).map(Number);
  const count = shape.reduce((total, extent) => total * extent, 1);
  if (bytes.length - end !== count * kind.BYTES_PER_ELEMENT) {
    throw new Error(`the file has ${bytes.length - end} bytes of data, its shape needs another number`);
  }
  return { shape, elements: new kind(bytes.slice(end).buffer) };
}

/** A float as an exact fraction. */
function fraction(x) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const exponent = Number((bits >> 52n) & 2047n);
  const mantissa = (bits & (2n ** 52n - 1n)) | (exponent ? 2n ** 52n : 0n);
  const power = BigInt((exponent || 1) - 1075);
  const signed = bits >> 63n ? -mantissa : mantissa;
  return power >= 0n ? [signed << power, 1n] : [signed, 1n << -power];
}

function floor(n, d) {
  const q = n / d;
  return n % d !== 0n && n < 0n ? q - 1n : q;
}

const ROUNDINGS = {
  half_up: (n, d) => floor(2n * n + d, 2n * d),
  half_even: (n, d) => {
    const up = floor(2n * n + d, 2n * d);
    return (2n * n + d) % (2n * d) === 0n && up % 2n !== 0n ? up - 1n : up;
  },
  toward_zero: (n, d) => n / d,
};

/** Elements of an input as codes: integers are codes, real numbers are quantised; what is out of range is clipped. */
export function codesOf(input, shape, elements) {
  const z = input.get("quantizer");
  if (!(elements instanceof Float32Array || elements instanceof Float64Array)) {
    return Int32Array.from(elements, (code) => {
      const found = Number(code);
      if (!Number.isInteger(found) || Math.abs(found) > 2 ** 31 - 1) {
        throw new Error(`${found} is no 32-bit integer`);
      }
      return found;
    });
  }
  if (z === undefined || !z.has("scale")) {
    throw new Error(`${input.get("value").get("name")} takes integers: give an array of its codes`);
  }
  const rationals = (words) => words.map((word) => word.split("/").map(BigInt));
  const [scales, offsets] = [rationals(z.get("scale")), rationals(z.get("offset"))];
  const extents = input.get("value").get("shape");
  const inner = z.has("axis") ? extents.slice(z.get("axis") + 1).reduce((total, extent) => total * extent, 1) : Infinity;
  const [lo, hi] = [BigInt(z.get("lo")), BigInt(z.get("hi"))];
  const round = ROUNDINGS[z.get("rounding")];
  return Int32Array.from(elements, (x, index) => {
    if (Number.isNaN(x)) {
      throw new Error("the array has an element that is no number");
    }
    if (!Number.isFinite(x)) {
      return Number(x < 0 ? lo : hi);
    }
    const channel = inner === Infinity ? 0 : Math.floor(index / inner) % scales.length;
    const [xn, xd] = fraction(x);
    const [on, od = 1n] = offsets[channel];
    const [sn, sd = 1n] = scales[channel];
    const code = round((xn * od - on * xd) * sd, xd * od * sn);
    return Number(code < lo ? lo : code > hi ? hi : code);
  });
}
