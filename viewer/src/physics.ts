// MuJoCo in WebAssembly, from the page itself.

import loadMujoco, { type MainModule } from "@mujoco/mujoco";
import { unpack } from "./data";

declare const PHYSICS_VERSION: string; // put in by build.mjs

export type Mujoco = MainModule;
export const version = PHYSICS_VERSION;

export async function loadPhysics(): Promise<Mujoco> {
  const wasmBinary = await unpack("wasm");
  return loadMujoco({ wasmBinary, locateFile: (name: string) => name } as object);
}
