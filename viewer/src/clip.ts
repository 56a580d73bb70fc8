// A clip of the stage: every frame is simulated, drawn and encoded, however long that takes.

import {
  BufferTarget,
  CanvasSource,
  getFirstEncodableVideoCodec,
  Mp4OutputFormat,
  Output,
  QUALITY_HIGH,
} from "mediabunny";

export const FRAMES_PER_SECOND = 30;

export interface Clip {
  blob: Blob;
  frames: number;
}

/** draw(seconds): go on by that much time and draw the next frame on the canvas. */
export async function recordClip(
  canvas: HTMLCanvasElement,
  seconds: number,
  draw: (seconds: number) => void,
  progress: (share: number) => void,
): Promise<Clip> {
  if (typeof VideoEncoder === "undefined") throw new Error("this browser cannot encode video");
  const size = { width: canvas.width, height: canvas.height };
  const codec = await getFirstEncodableVideoCodec(["avc", "vp9", "av1"], size);
  if (!codec) throw new Error("this browser has no encoder for H.264, VP9 or AV1");
  const target = new BufferTarget();
  const output = new Output({ format: new Mp4OutputFormat(), target });
  const source = new CanvasSource(canvas, { codec, bitrate: QUALITY_HIGH });
  output.addVideoTrack(source, { frameRate: FRAMES_PER_SECOND });
  await output.start();
  const frames = Math.round(seconds * FRAMES_PER_SECOND);
  for (let i = 0; i < frames; i++) {
    draw(1 / FRAMES_PER_SECOND);
    await source.add(i / FRAMES_PER_SECOND, 1 / FRAMES_PER_SECOND);
    progress((i + 1) / frames);
    await new Promise((resolve) => setTimeout(resolve)); // the page stays alive
  }
  await output.finalize();
  return { blob: new Blob([target.buffer!], { type: "video/mp4" }), frames };
}

export function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
