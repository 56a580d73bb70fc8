// Tiles side by side.

export interface Rectangle {
  x: number;
  y: number;
  width: number;
  height: number;
}

const SHAPE = 1.35; // width by height that suits a tile

export function tiles(count: number, width: number, height: number): Rectangle[] {
  let best = { columns: 1, badness: Infinity };
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns);
    const empty = columns * rows - count;
    const badness = Math.abs(Math.log(width / columns / (height / rows) / SHAPE)) + 0.25 * empty;
    if (badness < best.badness) best = { columns, badness };
  }
  const rows = Math.ceil(count / best.columns);
  return Array.from({ length: count }, (_, i) => {
    const inRow = Math.floor(i / best.columns) === rows - 1 ? count - (rows - 1) * best.columns : best.columns;
    return {
      x: ((i % best.columns) * width) / inRow,
      y: (Math.floor(i / best.columns) * height) / rows,
      width: width / inRow,
      height: height / rows,
    };
  });
}
