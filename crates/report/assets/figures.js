// Interactive figures, drawn by Apache ECharts like the page's drawings: bands, zoom, keyboard, export.
/** Makes the function that sets up one figure element; `say` speaks to screen readers. */
function kelvinFigures(data, say) {
  'use strict';

  const all = (selector, within) => Array.from(within.querySelectorAll(selector));
  for (const figure of data.figures.filter((one) => one.lines)) {
    figure.guides ??= [];
    figure.marks ??= [];
    for (const line of figure.lines) line.points = line.points.map(([x, y, low = y, high = y]) => ({ x, y, low, high }));
  }

  // ---- Colours: names, so that a chart follows the theme.
  const colors = { ink: 'var(--ink)', soft: 'var(--soft)', grid: 'var(--grid)', panel: 'var(--panel)' };
  const tone = (line) => `var(--s${line.color})`;
  /** A drawing for a file: light colours instead of their names, which few programs except browsers know. */
  const light = document.styleSheets[0].cssRules[0].style;
  const inLight = (drawing) => drawing.replace(/var\((--[\w-]+)\)/g, (_, name) => light.getPropertyValue(name));

  /** Distance of names that stand above each other. */
  const nameLine = 14;

  // ---- Texts and places
  function text(kind, value, digits) {
    if (value === 0) return '0';
    const scales = data.scales[kind];
    const [, factor, symbol] = scales.findLast(([least]) => Math.abs(value) >= least) ?? scales[0];
    const short = String(Number((value / factor).toPrecision(digits)));
    return symbol ? short + ' ' + symbol : short;
  }

  const place = (scale, value) => (!scale.log ? value : value > 0 ? Math.log10(value) : scale.zero ?? null);

  /** Round values between two places: for the part of an axis that is in view. */
  function roundValues(kind, scale, low, high) {
    const [base, mantissas] = data.binary.includes(kind) ? [2, [1]] : [10, [1, 2, 5]];
    const power = (value) => Math.floor(Math.log(value) / Math.log(base));
    const [from, to] = scale.log ? [10 ** low, 10 ** high] : [low, high];
    if (scale.log && to / from > 5) {
      const powers = Array.from({ length: power(to) - power(from) + 1 }, (_, i) => base ** (power(from) + i));
      return powers.flatMap((one) => mantissas.map((mantissa) => mantissa * one));
    }
    const rough = (to - from) / 8;
    const one = base ** power(rough);
    const step = one * [...mantissas, base].find((mantissa) => mantissa * one >= rough * 0.999);
    const first = Math.ceil(from / step);
    return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, i) => (first + i) * step);
  }

  /** The label for each place that has a tick: those of the whole axis, while enough of them are in view. */
  function ticks({ kind }, scale, low, high) {
    const isIn = ([at]) => at >= low - 1e-9 * (high - low) && at <= high + 1e-9 * (high - low);
    const known = scale.ticks.filter(isIn);
    if (known.length > 3 || (low === scale.low && high === scale.high)) return new Map(known);
    const values = roundValues(kind, scale, low, high);
    return new Map(values.map((value) => [place(scale, value), text(kind, value, 9)]).filter(isIn));
  }

  // ---- Figures
  const shownLines = (figure, state) => figure.lines.filter((_, index) => state.on[index]);

  /** Both scales of a figure, and the part in view: the reader's choice, or all. */
  function layout(figure, state) {
    const scale = (axis, log) => (log && axis.logarithmic ? { ...axis.logarithmic, log } : axis.linear);
    const [x, y] = [scale(figure.x, state.logX), scale(figure.y, state.logY)];
    const [left, right] = state.view?.x ?? [x.low, x.high];
    const [bottom, top] = state.view?.y ?? reach(figure, state, y);
    return { x, y, left, right, bottom, top };
  }

  /** The vertical extent of the lines and bands that are switched on: the whole axis if all are. */
  function reach(figure, state, scale) {
    const shown = shownLines(figure, state);
    if (shown.length === 0 || (state.bands && shown.length === figure.lines.length)) return [scale.low, scale.high];
    const ends = (line, point) => (state.bands && line.role !== 'predicted' ? [point.low, point.high] : [point.y]);
    const values = shown.flatMap((line) => line.points.flatMap((point) => ends(line, point)))
      .concat(figure.guides.flatMap((guide) => [guide.low, guide.high]));
    const places = values.map((value) => place(scale, value)).filter((at) => at !== null);
    const [low, high] = [Math.min(...places), Math.max(...places)];
    const room = 0.05 * (high - low) || 0.05 * (scale.high - scale.low);
    // Heights are compared from where the whole axis begins.
    return [scale.log ? Math.max(scale.low, low - room) : scale.low, Math.min(scale.high, high + room)];
  }

  function axisOption(axis, scale, low, high) {
    const labels = ticks(axis, scale, low, high);
    const places = [...labels.keys()];
    return {
      type: 'value', min: low, max: high,
      axisLabel: {
        customValues: places, hideOverlap: true, color: colors.soft, showMinLabel: true, showMaxLabel: true,
        formatter: (at) => labels.get(at) ?? '',
      },
      axisTick: { show: false, customValues: places },
      axisLine: { show: false },
      splitLine: { show: true, lineStyle: { color: colors.grid } },
    };
  }

  /** The band of a line, one piece per stretch without a gap; around a single point a bar as wide as a marker. */
  function bandSeries(line, view) {
    const starts = [0, ...line.gaps ?? []];
    const stretches = starts.map((from, i) => line.points.slice(from, starts[i + 1]));
    const renderItem = (params, api) => {
      // What lies at or below zero of a logarithmic axis leaves the figure.
      const at = (point, value) => api.coord([place(view.x, point.x), place(view.y, value) ?? view.bottom - 1]);
      const stretch = stretches[params.dataIndex];
      const lower = stretch.map((point) => at(point, point.low));
      const upper = stretch.map((point) => at(point, point.high)).reverse();
      const points = stretch.length > 1 ? [...lower, ...upper] : [[-3, lower], [3, lower], [3, upper], [-3, upper]].map(([aside, [[x, y]]]) => [x + aside, y]);
      return { type: 'polygon', silent: true, shape: { points }, style: { fill: tone(line), opacity: data.line_styles[line.role].band } };
    };
    return {
      type: 'custom', renderItem, data: stretches.map(([point]) => [place(view.x, point.x), place(view.y, point.y)]),
      silent: true, clip: true, tooltip: { show: false }, z: 1, animation: false,
    };
  }

  function lineSeries(line, index, view) {
    const look = data.line_styles[line.role];
    const color = tone(line);
    const isDash = line.marker === 'dash';
    return {
      type: 'line', id: 'series' + index, name: line.label, clip: true, z: 3, animation: false,
      data: line.points.map((point) => ({ value: [place(view.x, point.x), place(view.y, point.y)], point })),
      symbol: isDash ? 'rect' : line.marker ?? 'circle', symbolSize: isDash ? [16, 2] : look.hollow ? 9 : 6,
      showSymbol: line.marker !== undefined,
      itemStyle: look.hollow ? { color: colors.panel, borderColor: color, borderWidth: 1.6 } : { color },
      lineStyle: { color, width: look.width, type: look.dash.length > 0 ? look.dash : 'solid', cap: look.round ? 'round' : 'butt' },
      emphasis: { disabled: true },
    };
  }

  function guideSeries(guide, view) {
    return {
      type: 'line', data: [], silent: true, tooltip: { show: false },
      markArea: {
        silent: true, itemStyle: { color: colors.soft, opacity: 0.15 },
        data: [[{ yAxis: place(view.y, guide.low) ?? view.bottom }, { yAxis: place(view.y, guide.high) }]],
      },
    };
  }

  /** Where the names of vertical lines stand above a plot of some width: inwards at either end, and a row higher than one that they would touch. */
  function markNames(marks, view, width) {
    const { left, right } = data.margins;
    const ends = [];
    return [...marks].sort((one, other) => one.at - other.at).map((mark) => {
      const at = (place(view.x, mark.at) - view.left) / (view.right - view.left) * (width - left - right);
      const long = mark.label.length * data.character_width;
      const align = at - long / 2 < -left ? 'left' : at + long / 2 > width - left ? 'right' : 'center';
      const from = at - { left: 0, center: long / 2, right: long }[align];
      const free = ends.findIndex((end) => end <= from);
      const row = free < 0 ? ends.length : free;
      ends[row] = from + long + data.character_width;
      return { mark, align, row };
    });
  }

  /** A vertical line with its band and its name: where a cache ends. */
  function markSeries({ mark, align, row }, view) {
    return {
      type: 'line', data: [], silent: true, tooltip: { show: false }, z: 1,
      markArea: {
        silent: true, itemStyle: { color: colors.soft, opacity: 0.15 },
        data: [[{ xAxis: place(view.x, mark.low) }, { xAxis: place(view.x, mark.high) }]],
      },
      markLine: {
        silent: true, symbol: 'none', animation: false, lineStyle: { color: colors.soft, type: [2, 3], width: 1 },
        label: { formatter: () => mark.label, position: 'end', align, distance: 3 + nameLine * row, color: colors.soft, fontSize: 12 },
        data: [{ xAxis: place(view.x, mark.at) }],
      },
    };
  }

  function pointText(figure, point) {
    const value = text(figure.y.kind, point.y, 4);
    if (point.low === point.high) return value;
    return value + ' (' + text(figure.y.kind, point.low, 4) + ' to ' + text(figure.y.kind, point.high, 4) + ')';
  }

  function tooltip(figure, params) {
    const seen = params.filter((item) => item.data && item.data.point);
    if (seen.length === 0) return '';
    const box = document.createElement('div');
    box.className = 'tip';
    const head = document.createElement('b');
    head.textContent = figure.x.label + ' ' + text(figure.x.kind, seen[0].data.point.x, 6);
    box.append(head);
    for (const item of seen) {
      const said = document.createElement('span');
      said.textContent = item.seriesName + ': ' + pointText(figure, item.data.point);
      box.append(said);
    }
    return box;
  }

  function seriesOf(figure, state, view, names) {
    const series = [
      ...figure.guides.map((guide) => guideSeries(guide, view)),
      ...names.map((name) => markSeries(name, view)),
    ];
    const ranges = shownLines(figure, state).filter((line) => line.role === 'predicted').length;
    figure.lines.forEach((line, index) => {
      if (!state.on[index]) return;
      const crowds = line.role === 'predicted' && ranges > data.max_ranges;
      const banded = data.line_styles[line.role].band > 0 && line.points.some(({ low, high }) => low !== high);
      if (state.bands && banded && !crowds) series.push(bandSeries(line, view));
      series.push(lineSeries(line, index, view));
    });
    return series;
  }

  /** What the library draws at some width. */
  function option(figure, state, width, exported) {
    const view = layout(figure, state);
    const isIn = (mark) => place(view.x, mark.at) > view.left && place(view.x, mark.at) < view.right;
    const names = markNames(figure.marks.filter(isIn), view, width);
    const { left, right, bottom } = data.margins;
    const top = data.margins.top + nameLine * Math.max(0, ...names.map((name) => name.row));
    const result = {
      animation: false,
      backgroundColor: exported ? colors.panel : 'transparent',
      // No quotes: the library writes the name into an attribute of the SVG as it is.
      textStyle: { fontFamily: 'system-ui, -apple-system, Roboto, sans-serif', color: colors.ink },
      grid: { left, right, top: top + (exported ? 30 : 0), bottom: bottom + (exported ? 46 : 0), outerBoundsMode: 'none' },
      xAxis: {
        ...axisOption(figure.x, view.x, view.left, view.right),
        name: figure.x.label, nameLocation: 'middle', nameGap: 30, nameTextStyle: { color: colors.soft },
      },
      yAxis: axisOption(figure.y, view.y, view.bottom, view.top),
      series: seriesOf(figure, state, view, names),
      tooltip: {
        trigger: 'axis', confine: true, transitionDuration: 0, backgroundColor: colors.panel, borderColor: colors.grid,
        textStyle: { color: colors.ink }, formatter: (params) => tooltip(figure, [].concat(params)),
        axisPointer: { type: 'line', snap: true, lineStyle: { color: colors.soft }, label: { show: false } },
      },
      legend: { show: false },
      aria: { enabled: false },
    };
    if (exported) {
      result.title = { text: figure.title, left: 12, top: 8, textStyle: { fontSize: 14, color: colors.ink } };
      // The library draws a marker in any case: lines without one get an invisible one.
      const entry = ({ label, marker }) => (marker && marker !== 'dash' ? label : { name: label, itemStyle: { opacity: 0 } });
      const entries = shownLines(figure, state).map(entry);
      result.legend = { show: true, bottom: 6, left: 'center', type: 'plain', data: entries, textStyle: { color: colors.soft } };
    }
    return { option: result, axes: view };
  }

  // ---- Export
  function csv(rows) {
    // What a spreadsheet would take for a formula gets an apostrophe, as in csv.rs.
    const inert = (field) => (/^\s*[=+\-@＝＋－＠]/.test(field) && Number.isNaN(Number(field)) ? "'" + field : field);
    const quote = (field) => (/[",\r\n]/.test(field) ? '"' + field.replace(/"/g, '""') + '"' : field);
    return rows.map((row) => row.map((field) => quote(inert(String(field ?? '')))).join(',') + '\r\n').join('');
  }

  /** The lines that are switched on, in rows. */
  function rowsOf(figure, state) {
    const points = (line) => line.points.map(({ x, y, low, high }) => [line.label, line.role, x, y, low, high]);
    return [['series', 'role', 'x', 'y', 'low', 'high'], ...shownLines(figure, state).flatMap(points)];
  }

  function svgOf(figure, state) {
    const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width: 960, height: 560 });
    chart.setOption(option(figure, state, 960, true).option);
    const drawing = chart.renderToSVGString();
    chart.dispose();
    return drawing;
  }

  /** A drawing as pixels, two per unit. */
  function png(drawing) {
    return new Promise((resolve, reject) => {
      const image = new Image();
      image.onload = () => {
        const canvas = document.createElement('canvas');
        canvas.width = 2 * image.naturalWidth;
        canvas.height = 2 * image.naturalHeight;
        canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('the browser made no PNG'))), 'image/png');
      };
      image.onerror = () => reject(new Error('the browser could not draw the SVG'));
      image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(drawing);
    });
  }

  async function make(kind, { svg, rows }) {
    if (kind === 'csv') return new Blob([csv(rows())], { type: 'text/csv' });
    const drawing = inLight(svg());
    return kind === 'png' ? png(drawing) : new Blob([drawing], { type: 'image/svg+xml' });
  }

  /** The export menu of an element; `source` gives the drawing and the data. */
  function exporting(element, source) {
    element.querySelector('.controls').append(document.getElementById('export').content.cloneNode(true));
    const menu = element.querySelector('.menu');
    for (const button of all('button', menu)) {
      button.addEventListener('click', async () => {
        const [verb, kind] = button.dataset.action.split('-');
        try {
          await { copy, save }[verb](await make(kind, source), element.id.replace('figure-', '') + '.' + kind);
        } catch (refused) {
          say('Not exported: ' + refused.message);
          return;
        }
        menu.open = false;
        menu.querySelector('summary').focus();
      });
    }
  }

  function save(blob, name) {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = name;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say('Saved ' + name);
  }

  async function copy(blob, name) {
    try {
      if (blob.type === 'image/png') await navigator.clipboard.write([new ClipboardItem({ 'image/png': blob })]);
      else await navigator.clipboard.writeText(await blob.text());
      say('Copied ' + name);
    } catch (refused) {
      // A browser may refuse its clipboard to a page opened from a file.
      save(blob, name);
    }
  }

  // ---- One figure: state, drawing, controls
  function setUp(element) {
    const figure = data.figures[Number(element.dataset.figure)];
    if (figure.lines) return setUpPlot(element, figure);
    exporting(element, kelvinHeat(element, figure, say));
    return { element, start: () => {} };
  }

  function setUpPlot(element, figure) {
    figure.title = element.querySelector('figcaption strong').textContent;
    const state = { logX: figure.x.log, logY: figure.y.log, bands: true, view: null, on: figure.lines.map(() => true) };
    let chart = null;
    let axes = null;
    exporting(element, { svg: () => svgOf(figure, state), rows: () => rowsOf(figure, state) });
    const canvas = element.querySelector('.canvas');
    const reset = element.querySelector('[data-action="reset"]');

    const draw = () => {
      if (!chart) return;
      const drawn = option(figure, state, chart.getWidth(), false);
      axes = drawn.axes;
      chart.setOption(drawn.option, { notMerge: true });
      reset.disabled = state.view === null;
    };
    const look = (view) => { state.view = view; draw(); };

    const start = () => {
      const box = document.createElement('div');
      box.className = 'chart';
      box.tabIndex = 0;
      box.setAttribute('role', 'group');
      box.setAttribute('aria-label', figure.title + '. Left and right arrow keys read the values; drag to zoom, Escape resets.');
      canvas.append(box);
      element.classList.add('drawn');
      chart = echarts.init(box, null, { renderer: 'svg' });
      draw();
      inspect(figure, state, box, chart, () => look(null));
      zoom(canvas, box, chart, () => axes, look);
      watchWidth(box, () => { chart.resize(); if (figure.marks.length > 1) draw(); });
    };

    for (const [action, name] of Object.entries({ 'log-x': 'logX', 'log-y': 'logY', bands: 'bands' })) {
      const button = element.querySelector(`[data-action="${action}"]`);
      button?.addEventListener('click', () => {
        state[name] = !state[name];
        button.setAttribute('aria-pressed', String(state[name]));
        look(null);
      });
    }
    reset.addEventListener('click', () => look(null));
    for (const input of all('input[data-series]', element)) {
      input.addEventListener('change', () => {
        state.on[Number(input.dataset.series)] = input.checked;
        draw();
      });
    }
    return { element, start };
  }

  /** Calls `changed` when the width of a box has changed; its height is fixed. */
  function watchWidth(box, changed) {
    let width = box.clientWidth;
    new ResizeObserver(() => {
      if (box.clientWidth === width) return;
      width = box.clientWidth;
      changed();
    }).observe(box);
  }

  /** Arrow keys move from point to point and read the values. */
  function inspect(figure, state, box, chart, showAll) {
    let at = -1;
    box.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { showAll(); say('Whole range'); return; }
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const shown = shownLines(figure, state);
      const read = shown.filter((line) => line.role !== 'fitted');
      const positions = [...new Set(read.flatMap((line) => line.points.map((point) => point.x)))].sort((a, b) => a - b);
      if (positions.length === 0) return;
      at = Math.max(0, Math.min(positions.length - 1, at + step));
      const found = shown.map((line) => [line, line.points.findIndex((point) => point.x === positions[at])])
        .filter(([, index]) => index >= 0);
      const [first, index] = found[0];
      const option = chart.getOption();
      const seriesIndex = option.series.findIndex((one) => one.id === 'series' + figure.lines.indexOf(first));
      chart.dispatchAction({ type: 'showTip', seriesIndex, dataIndex: index });
      const values = found.map(([line, i]) => line.label + ' ' + pointText(figure, line.points[i]));
      say(text(figure.x.kind, positions[at], 6) + ': ' + values.join('; '));
    });
    box.addEventListener('blur', () => chart.dispatchAction({ type: 'hideTip' }));
  }

  /** Dragging a box zooms into it; a double click shows all. Touch is left to scrolling. */
  function zoom(canvas, box, chart, axes, view) {
    let from = null;
    const mark = document.createElement('div');
    mark.className = 'zoombox';
    mark.hidden = true;
    canvas.append(mark);
    const place = (event) => {
      const frame = box.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    box.addEventListener('pointerdown', (event) => {
      if (event.pointerType === 'touch' || event.button !== 0) return;
      const at = place(event);
      if (!chart.containPixel('grid', at)) return;
      from = at;
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener('pointermove', (event) => {
      if (!from) return;
      const [x, y] = place(event);
      mark.hidden = false;
      mark.style.left = Math.min(x, from[0]) + 'px';
      mark.style.top = Math.min(y, from[1]) + 'px';
      mark.style.width = Math.abs(x - from[0]) + 'px';
      mark.style.height = Math.abs(y - from[1]) + 'px';
    });
    const end = (event) => {
      if (!from) return;
      const [a, b] = [from, place(event)];
      from = null;
      mark.hidden = true;
      if (Math.abs(a[0] - b[0]) < 8 || Math.abs(a[1] - b[1]) < 8) return;
      const [p, q] = [chart.convertFromPixel('grid', a), chart.convertFromPixel('grid', b)];
      const { left, right, bottom, top } = axes();
      const within = (low, high, one, other) =>
        [Math.max(low, Math.min(one, other)), Math.min(high, Math.max(one, other))];
      view({ x: within(left, right, p[0], q[0]), y: within(bottom, top, p[1], q[1]) });
    };
    box.addEventListener('pointerup', end);
    box.addEventListener('pointercancel', () => { from = null; mark.hidden = true; });
    box.addEventListener('dblclick', () => view(null));
  }

  return setUp;
}
