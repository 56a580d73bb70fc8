// Mazes from above: walls, the paths of earlier episodes, the path of this one, the agent.

import type { MazeSpec } from "./data";
import type { Grip, Shown, View } from "./view";
import type { Point } from "./world";

export class MazeView implements View {
  private context: CanvasRenderingContext2D;
  private ratio = 1;
  private scale = 1;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private spec: MazeSpec,
  ) {
    this.context = canvas.getContext("2d")!;
  }

  resize(width: number, height: number, ratio: number): void {
    this.ratio = ratio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
  }

  stepped(): void {}
  jumped(): void {}
  turn(): void {}

  zoom(factor: number): void {
    this.scale = Math.max(0.5, Math.min(4, this.scale / factor));
  }

  grip(): Grip | null {
    return null;
  }

  draw(shown: Shown[], part: number): void {
    const pen = this.context;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = "#eef2f7";
    pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    for (const one of shown) this.drawTile(one, part);
  }

  private drawTile({ player, colour, tile }: Shown, part: number): void {
    const pen = this.context;
    const xs = this.spec.cells.map(([x]) => x);
    const ys = this.spec.cells.map(([, y]) => y);
    const [left, right, low, high] = [Math.min(...xs) - 1, Math.max(...xs) + 1, Math.min(...ys) - 1, Math.max(...ys) + 1];
    const room = 34; // for the label
    const scale = this.scale * Math.min(tile.width / (right - left), (tile.height - room) / (high - low));
    const middle = [tile.x + tile.width / 2, tile.y + room + (tile.height - room) / 2];
    const at = ([x, y]: number[]): [number, number] => [
      middle[0] + (x - (left + right) / 2) * scale,
      middle[1] - (y - (low + high) / 2) * scale,
    ];
    pen.save();
    pen.beginPath();
    pen.rect(tile.x, tile.y, tile.width, tile.height);
    pen.clip();
    pen.fillStyle = "#ffffff";
    for (const [x, y] of this.spec.cells) {
      const [px, py] = at([x - 0.5, y + 0.5]);
      pen.fillRect(px - 0.5, py - 0.5, scale + 1, scale + 1);
    }
    pen.lineCap = pen.lineJoin = "round";
    const draw = (path: Point[], alpha: number, width: number) => {
      pen.globalAlpha = alpha;
      pen.lineWidth = width;
      pen.strokeStyle = colour;
      pen.beginPath();
      path.forEach((point, i) => (i ? pen.lineTo(...at(point)) : pen.moveTo(...at(point))));
      pen.stroke();
    };
    pen.globalAlpha = 1;
    pen.strokeStyle = "#2b3646";
    pen.lineWidth = Math.max(2, scale * 0.08);
    pen.beginPath();
    for (const [from, to] of this.spec.walls) {
      pen.moveTo(...at(from));
      pen.lineTo(...at(to));
    }
    pen.stroke();
    player.past.forEach((path, i) => draw(path, 0.12 + (0.2 * i) / player.past.length, 1.5));
    const { trail } = player;
    const n = trail.length;
    const head: Point = n > 1 ? (trail[n - 2].map((a, i) => a + (trail[n - 1][i] - a) * part) as Point) : player.simulation.place();
    draw([...trail.slice(0, -1), head], 1, 2.6);
    pen.globalAlpha = 1;
    const radius = Math.max(5, scale * 0.16);
    pen.beginPath();
    pen.arc(...at(head), radius, 0, 2 * Math.PI);
    pen.fillStyle = colour;
    pen.fill();
    pen.strokeStyle = "#fff";
    pen.lineWidth = 2;
    pen.stroke();
    pen.restore();
  }

}
