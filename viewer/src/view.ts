// What draws the stage.

import type { Rectangle } from "./layout";
import type { Player } from "./player";
import type { Point } from "./world";

export interface Shown {
  player: Player;
  colour: string;
  tile: Rectangle;
}

export interface Grip {
  /** The cursor moved: pull what is held towards it. */
  pull(x: number, y: number): { force: Point; body: number };
}

export interface View {
  readonly canvas: HTMLCanvasElement;
  resize(width: number, height: number, ratio: number): void;
  /** After a control step of a player, so that frames in between can be interpolated. */
  stepped(index: number, player: Player): void;
  /** After a jump: a restart, another roll-out. */
  jumped(index: number, player: Player): void;
  /** part: how far the next control step has come, in [0, 1]. */
  draw(shown: Shown[], part: number): void;
  /** The robot under the cursor, if it can be held; x and y within the tile, in [-1, 1]. */
  grip(index: number, x: number, y: number): Grip | null;
  turn(dx: number, dy: number): void;
  zoom(factor: number): void;
}
