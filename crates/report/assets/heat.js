// Heat maps, drawn by Apache ECharts: coloured cells with their values, reading by keyboard, export.
/** Makes what a figure needs to be a heat map; `words` are the texts and colours that all figures share. */
function kelvinHeat(words) {
  'use strict';

  const { colors } = words;
  const LARGEST_CELL = 56;
  const LEAST_FOR_TEXT = 34;
  const FRAME = 4;
  const ROOM = { left: 78, right: 22, bottom: 50 };

  /** The cells of the data as objects. */
  function unpack(figure) {
    const names = ['row', 'column', 'step', 'value', 'low', 'high', 'predicted', 'standing'];
    figure.cells = figure.cells.map((cell) => Object.fromEntries(names.map((name, index) => [name, cell[index]])));
  }

  /** Side of a cell, and the height of the whole, in a box of this size. */
  function size(figure, width, height, top) {
    const [down, across] = [figure.rows.length, figure.columns.length];
    const side = Math.min(LARGEST_CELL, (width - ROOM.left - ROOM.right) / across, (height - top - ROOM.bottom) / down);
    return { side, height: top + side * down + ROOM.bottom };
  }

  const place = (figure, row, column) =>
    figure.row_label + ' ' + figure.rows[row] + ' ' + figure.column_label + ' ' + figure.columns[column];

  /** What a cell holds, in words. */
  function cellText(figure, cell) {
    const one = (value) => words.text(figure.unit, value, 4);
    const interval = cell.low === cell.high ? '' : ' (' + one(cell.low) + ' to ' + one(cell.high) + ')';
    const predicted = cell.predicted === null ? '' : ', predicted ' + one(cell.predicted);
    return one(cell.value) + interval + predicted + ['', ', not told apart from the best', ', the best'][cell.standing];
  }

  function tooltip(figure, cell) {
    const box = document.createElement('div');
    box.className = 'tip';
    const head = document.createElement('b');
    head.textContent = place(figure, cell.row, cell.column);
    const line = document.createElement('span');
    line.textContent = cellText(figure, cell);
    box.append(head, line);
    return box;
  }

  /** The frame of a cell that is best or as good, inside of it, for its neighbour may have one too; as its text. */
  function frame(cell, ink, x, y, side) {
    const [width, dash] = cell.standing === 2 ? [3, null] : [1.5, [3, 2]];
    const inner = side - 2 * FRAME;
    return {
      type: 'rect', silent: true, shape: { x: x - inner / 2, y: y - inner / 2, width: inner, height: inner },
      style: { fill: 'none', stroke: ink, lineWidth: width, lineDash: dash },
    };
  }

  /** One cell; the one that the keyboard is at has a frame around it. */
  function renderCell(figure, cursor, side) {
    return (params, api) => {
      const cell = figure.cells[params.dataIndex];
      const [x, y] = api.coord([cell.column, cell.row]);
      const gap = Math.min(side / 40, 1);
      const [fill, ink] = [`var(--h${cell.step})`, `var(--ht${cell.step})`];
      const at = cursor && cursor.row === cell.row && cursor.column === cell.column;
      const label = (cell.value / figure.factor).toPrecision(3);
      const drawn = {
        type: 'rect',
        shape: { x: x - side / 2 + gap, y: y - side / 2 + gap, width: side - 2 * gap, height: side - 2 * gap },
        style: { fill, stroke: at ? colors.ink : 'none', lineWidth: at ? 3 : 0 },
        textContent: side >= LEAST_FOR_TEXT ? { style: { text: label, fill: ink, fontSize: 12 } } : undefined,
        textConfig: { position: 'inside' },
      };
      return cell.standing ? { type: 'group', children: [drawn, frame(cell, ink, x, y, side)] } : drawn;
    };
  }

  function axis(names, label, more) {
    return {
      type: 'category', data: names, name: label, nameLocation: 'middle', nameTextStyle: { color: colors.soft },
      axisLabel: { color: colors.soft, hideOverlap: true }, axisTick: { show: false }, axisLine: { show: false },
      splitLine: { show: false }, ...more,
    };
  }

  /** The chart in a box of this size; an exported one has title and legend. */
  function option(figure, state, box, exported) {
    const top = exported ? 44 : 14;
    const { side, height } = size(figure, box.width, exported ? box.height - 44 : Infinity, top);
    const cursor = exported ? null : state.cursor;
    const result = {
      animation: false,
      backgroundColor: exported ? colors.panel : 'transparent',
      textStyle: { fontFamily: 'system-ui, -apple-system, Roboto, sans-serif', color: colors.ink },
      grid: {
        left: ROOM.left, top, width: side * figure.columns.length, height: side * figure.rows.length, outerBoundsMode: 'none',
      },
      xAxis: axis(figure.columns, figure.column_label + ' (values in ' + figure.symbol + ')', { nameGap: 28 }),
      yAxis: axis(figure.rows, figure.row_label, { nameGap: 44, inverse: true }),
      series: [{
        type: 'custom', id: 'cells', renderItem: renderCell(figure, cursor, side), animation: false,
        data: figure.cells.map((cell) => [cell.column, cell.row]), encode: { x: 0, y: 1 },
      }],
      tooltip: {
        trigger: 'item', confine: true, transitionDuration: 0, backgroundColor: colors.panel, borderColor: colors.grid,
        textStyle: { color: colors.ink }, formatter: (item) => tooltip(figure, figure.cells[item.dataIndex]),
      },
      aria: { enabled: false },
    };
    if (exported) {
      result.title = { text: figure.title, left: 12, top: 8, textStyle: { fontSize: 14, color: colors.ink } };
      result.visualMap = {
        type: 'piecewise', orient: 'horizontal', left: 'center', bottom: 6, selectedMode: false, seriesIndex: [],
        itemWidth: 14, itemHeight: 14, textStyle: { color: colors.soft, fontSize: 11 },
        pieces: figure.steps.map((label, step) => ({ value: step, label, color: `var(--h${step})` })),
      };
    }
    return { option: result, height };
  }

  function csv(figure, quote) {
    const lines = [[...figure.axes.map(quote), 'value,low,high,predicted'].join(',')];
    for (const cell of figure.cells) {
      const names = [figure.rows[cell.row], figure.columns[cell.column]].map(quote);
      lines.push([...names, cell.value, cell.low, cell.high, cell.predicted ?? ''].join(','));
    }
    return lines.join('\r\n') + '\r\n';
  }

  /** Arrow keys go from cell to cell in all four directions and say what is there. */
  function inspect(figure, state, box, chart, draw, say) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const within = (index, names) => Math.max(0, Math.min(names.length - 1, index));
    box.addEventListener('keydown', (event) => {
      if (!(event.key in steps)) return;
      event.preventDefault();
      const [down, right] = steps[event.key];
      const from = state.cursor ?? { row: 0, column: right > 0 ? -1 : 0 };
      state.cursor = { row: within(from.row + down, figure.rows), column: within(from.column + right, figure.columns) };
      draw();
      const { row, column } = state.cursor;
      const dataIndex = figure.cells.findIndex((cell) => cell.row === row && cell.column === column);
      // A chart that is drawn again shows its last tip a moment later, or hides it: this comes after that.
      const tip = dataIndex < 0 ? { type: 'hideTip' } : { type: 'showTip', seriesIndex: 0, dataIndex };
      setTimeout(() => { if (state.cursor) chart.dispatchAction(tip); });
      say(place(figure, row, column) + ': ' + (dataIndex < 0 ? 'no number' : cellText(figure, figure.cells[dataIndex])));
    });
    box.addEventListener('blur', () => {
      state.cursor = null;
      chart.dispatchAction({ type: 'hideTip' });
      draw();
    });
  }

  return { unpack, option, csv, inspect };
}
