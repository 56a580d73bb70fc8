// The policy as torch exported it: its operations, one after the other, on vectors.

import { row, type Argument, type Packed, type PolicyGraph } from "./data";

type Vector = Float32Array;
type Value = any; // a vector, a list of them, a number or null, as torch's operation takes it

const each = (f: (x: number) => number) => (x: Vector) => x.map((v) => f(v));

const both = (f: (x: number, y: number) => number) => (x: Vector | number, y: Vector | number) => {
  const n = Math.max(typeof x === "number" ? 1 : x.length, typeof y === "number" ? 1 : y.length);
  const at = (v: Vector | number, i: number) => (typeof v === "number" ? v : v.length === 1 ? v[0] : v[i]);
  return Float32Array.from({ length: n }, (_, i) => f(at(x, i), at(y, i)));
};

const softplus = (x: number) => (x > 20 ? x : Math.log1p(Math.exp(x)));
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

function linear(x: Vector, weight: Packed<Float32Array>, bias: Packed<Float32Array> | null): Vector {
  const [rows, columns] = weight.shape;
  const w = weight.data;
  const y = new Float32Array(rows);
  for (let i = 0, at = 0; i < rows; i++, at += columns) {
    let sum = bias ? bias.data[i] : 0;
    for (let j = 0; j < columns; j++) sum += w[at + j] * x[j];
    y[i] = sum;
  }
  return y;
}

function layerNorm(x: Vector, _: number[], weight: Packed<Float32Array> | null, bias: Packed<Float32Array> | null, epsilon: number): Vector {
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length;
  const scale = 1 / Math.sqrt(variance + epsilon);
  return x.map((v, i) => (v - mean) * scale * (weight?.data[i] ?? 1) + (bias?.data[i] ?? 0));
}

function concatenate(parts: Vector[]): Vector {
  const whole = new Float32Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function split(x: Vector, size: number): Vector[] {
  return Array.from({ length: Math.ceil(x.length / size) }, (_, i) => x.subarray(i * size, (i + 1) * size));
}

const OPERATIONS: Record<string, (...args: Value[]) => Value> = {
  linear,
  layer_norm: layerNorm,
  cat: concatenate,
  tanh: each(Math.tanh),
  relu: each((x) => Math.max(x, 0)),
  sigmoid: each(sigmoid),
  silu: each((x) => x * sigmoid(x)),
  elu: each((x) => (x > 0 ? x : Math.expm1(x))),
  softplus: each(softplus),
  exp: each(Math.exp),
  neg: each((x) => -x),
  clamp: (x: Vector, low: number | null, high: number | null) =>
    x.map((v) => Math.min(Math.max(v, low ?? -Infinity), high ?? Infinity)),
  add: both((x, y) => x + y),
  sub: both((x, y) => x - y),
  mul: both((x, y) => x * y),
  div: both((x, y) => x / y),
  rsub: both((x, y) => y - x),
  norm: (x: Vector) => Float32Array.of(Math.hypot(...x)),
  argmax: (x: Vector) => x.indexOf(x.reduce((a, b) => Math.max(a, b))),
  one_hot: (i: number, size: number) => Float32Array.from({ length: size }, (_, j) => Number(j === i)),
  select: (matrix: Packed<Float32Array>, _: number, i: number) => row(matrix, i),
  chunk: (x: Vector, parts: number) => split(x, Math.ceil(x.length / parts)),
  split,
  slice: (x: Vector, _: number, from: number | null, to: number | null) =>
    x.subarray(from ?? 0, Math.min(to ?? x.length, x.length)),
  getitem: (list: Vector[], i: number) => list[i],
  same: (x: Vector) => x,
};

export class Policy {
  constructor(private graph: PolicyGraph) {
    for (const { op } of graph.nodes) {
      if (!(op in OPERATIONS)) throw new Error(`the policy has an unknown operation: ${op}`);
    }
  }

  /** The mean action. */
  act(obs: Vector, skill: Vector): Vector {
    const values: Value[] = [obs, skill];
    const resolve = (argument: Argument): Value => {
      if (Array.isArray(argument)) return argument.map(resolve);
      if (argument === null || typeof argument !== "object") return argument;
      return "node" in argument ? values[argument.node] : argument;
    };
    for (const { op, args } of this.graph.nodes) {
      const given = args.map(resolve);
      const elementwise = ["add", "sub", "mul", "div", "rsub"].includes(op);
      // Constants of elementwise operations are vectors, too.
      values.push(OPERATIONS[op](...(elementwise ? given.map((x) => x?.data ?? x) : given)));
    }
    return values[this.graph.output];
  }
}
