// Which skill acted when: a line of colours that ends now.

/** steps: how many the whole width stands for. */
export function drawStrip(canvas: HTMLCanvasElement, flags: number[], steps: number, colour: (flag: number) => string): void {
  const pen = canvas.getContext("2d")!;
  const { width, height } = canvas;
  const toX = (step: number) => Math.round(width - ((flags.length - step) * width) / steps);
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, width, height);
  for (let from = 0, to = 0; from < flags.length; from = to) {
    while (to < flags.length && flags[to] === flags[from]) to++;
    pen.fillStyle = colour(flags[from]);
    pen.fillRect(toX(from), 0, toX(to) - toX(from), height);
  }
}
