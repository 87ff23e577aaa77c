// Interactive figures, drawn by Apache ECharts: axes, bands, zoom, reading by keyboard, export.
/** Makes the function that sets up one figure element; `say` speaks to screen readers. */
function kelvinFigures(data, say) {
  'use strict';

  const all = (selector, within) => Array.from(within.querySelectorAll(selector));
  for (const series of data.figures.flatMap((figure) => figure.series ?? [])) {
    series.points = series.points.map(([x, y, low = y, high = y]) => ({ x, y, low, high }));
  }

  // ---- Colours: names, so that a chart follows the theme by itself.
  const colors = { ink: 'var(--ink)', soft: 'var(--soft)', grid: 'var(--grid)', panel: 'var(--panel)' };
  const tone = (series) => `var(--s${series.style % 8})`;
  /** A drawing for a file: light colours in the place of their names, which few programs but browsers know. */
  const inLight = (drawing) => drawing.replace(/var\((--[\w-]+)\)/g, (_, name) => document.styleSheets[0].cssRules[0].style.getPropertyValue(name));

  const { text, makeAxis, extent, ticks } = kelvinAxes();
  const heat = kelvinHeat({ text, colors });
  for (const figure of data.figures) if (figure.kind === 'heat') heat.unpack(figure);

  // ---- Figures
  const SYMBOLS = ['circle', 'rect', 'triangle', 'diamond'];

  /** The axes of a figure, and what part of them is in view. */
  function layout(figure, state) {
    const shown = figure.series.filter((_, index) => state.on[index]);
    const xs = shown.flatMap((series) => series.points.map((point) => point.x));
    const ends = (series, point) => (series.role === 'predicted' || !state.bands ? [point.y] : [point.low, point.high]);
    const ys = shown.flatMap((series) => series.points.flatMap((point) => ends(series, point)))
      .concat(figure.guides.flatMap((guide) => [guide.low, guide.high]));
    const x = makeAxis(figure.x.kind, state.logX, xs);
    const y = makeAxis(figure.y.kind, state.logY, ys.filter((value) => !state.logY || value > 0));
    const [left, right] = state.view ? state.view.x : extent(x, xs, 0.02, figure.x.from_zero);
    const [bottom, top] = state.view ? state.view.y : extent(y, ys, 0.05, figure.y.from_zero);
    return { x, y, left, right, bottom, top };
  }

  function axisOption(axis, low, high) {
    const labels = ticks(axis, low, high);
    const places = [...labels.keys()];
    return {
      type: 'value', min: low, max: high,
      axisLabel: {
        customValues: places, hideOverlap: true, color: colors.soft, showMinLabel: true, showMaxLabel: true,
        formatter: (place) => labels.get(place) ?? '',
      },
      axisTick: { show: false, customValues: places },
      axisLine: { show: false },
      splitLine: { show: true, lineStyle: { color: colors.grid } },
    };
  }

  /** Longest gap in a history that its band goes over, as a share of the whole. */
  const LONGEST_GAP = 0.02;

  /** One quadrilateral of a band between two points. */
  function bandPiece(params, api) {
    const value = (index) => api.value(index);
    const corner = (x, y) => api.coord([value(x), value(y)]);
    return {
      type: 'polygon',
      silent: true,
      shape: { points: [corner(0, 1), corner(3, 4), corner(3, 5), corner(0, 2)] },
      style: { fill: api.visual('color'), opacity: value(6) },
    };
  }

  function bandSeries(series, axes, opacity) {
    const floor = (place) => (place === null || place < axes.bottom - 10 ? axes.bottom - 10 : place);
    const edge = (point) => [axes.x.to(point.x), floor(axes.y.to(point.low)), floor(axes.y.to(point.high))];
    const { points } = series;
    const pieces = [];
    const bar = (point, share) => {
      const [place, low, high] = edge(point);
      const half = share * (axes.right - axes.left);
      pieces.push([place - half, low, high, place + half, low, high, opacity]);
    };
    // A band of one point would have no width: a bar as wide as a marker is.
    if (points.length === 1) bar(points[0], 0.006);
    // Nobody looked in a long gap of a history (see svg.rs).
    const longest = series.role === 'history' ? LONGEST_GAP * (points.at(-1).x - points[0].x) : Infinity;
    const joined = (i) => i > 0 && i < points.length && points[i].x - points[i - 1].x <= longest;
    points.forEach((point, i) => {
      if (joined(i)) pieces.push([...edge(points[i - 1]), ...edge(point), opacity]);
      else if (points.length > 1 && !joined(i + 1)) bar(point, 0.001);
    });
    return {
      type: 'custom', renderItem: bandPiece, data: pieces, silent: true, clip: true, color: tone(series), itemStyle: { color: tone(series) },
      encode: { x: [0, 3], y: [1, 2, 4, 5] }, tooltip: { show: false }, z: 1, animation: false, legendHoverLink: false,
    };
  }

  function lineSeries(series, index, axes) {
    const color = tone(series);
    const hollow = series.role === 'as_found' || series.role === 'reference';
    const line = !hollow;
    // A line of one point would not be seen: a prediction for it is a dash.
    const dash = series.role === 'predicted' && series.points.length === 1;
    const marks = hollow || dash || (series.role === 'measured' && series.points.length <= 60);
    return {
      type: 'line', id: 'series' + index, name: series.label, clip: true, z: 3, animation: false,
      data: series.points.map((point) => ({ value: [axes.x.to(point.x), axes.y.to(point.y)], point })),
      symbol: dash ? 'rect' : SYMBOLS[series.style % SYMBOLS.length], symbolSize: dash ? [16, 2] : hollow ? 10 : 6, showSymbol: marks,
      itemStyle: hollow ? { color: colors.panel, borderColor: color, borderWidth: 2 } : { color },
      lineStyle: {
        color, width: !line ? 0 : { measured: 2, history: 1.2, fitted: 2.6 }[series.role] ?? 1.6,
        type: { predicted: [6, 4], fitted: [0.1, 5] }[series.role] ?? 'solid', cap: series.role === 'fitted' ? 'round' : 'butt',
      },
      emphasis: { disabled: true },
    };
  }

  function guideSeries(guide, axes) {
    return {
      type: 'line', data: [], silent: true, tooltip: { show: false },
      markArea: {
        silent: true, itemStyle: { color: colors.soft, opacity: 0.15 },
        data: [[{ yAxis: axes.y.to(guide.low) ?? axes.bottom }, { yAxis: axes.y.to(guide.high) }]],
      },
    };
  }

  /** A vertical line with its band and its name: where a cache ends. */
  function markSeries(mark, axes) {
    return {
      type: 'line', data: [], silent: true, tooltip: { show: false }, z: 1,
      markArea: {
        silent: true, itemStyle: { color: colors.soft, opacity: 0.15 },
        data: [[{ xAxis: axes.x.to(mark.low) }, { xAxis: axes.x.to(mark.high) }]],
      },
      markLine: {
        silent: true, symbol: 'none', animation: false, lineStyle: { color: colors.soft, type: [2, 3], width: 1 },
        label: { formatter: () => mark.label, position: 'end', distance: 3, color: colors.soft, fontSize: 11 },
        data: [{ xAxis: axes.x.to(mark.at) }],
      },
    };
  }

  function pointText(figure, series, point) {
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
      const line = document.createElement('span');
      const series = figure.series.find((one) => one.label === item.seriesName);
      line.textContent = item.seriesName + ': ' + pointText(figure, series, item.data.point);
      box.append(line);
    }
    return box;
  }

  function option(figure, state, exported) {
    const axes = layout(figure, state);
    const series = figure.guides.map((guide) => guideSeries(guide, axes));
    const marks = figure.marks.filter((mark) => axes.x.to(mark.at) > axes.left && axes.x.to(mark.at) < axes.right);
    series.push(...marks.map((mark) => markSeries(mark, axes)));
    const predictions = figure.series.filter((one, index) => one.role === 'predicted' && state.on[index]).length;
    figure.series.forEach((one, index) => {
      if (!state.on[index]) return;
      const banded = one.role === 'measured' || one.role === 'history' || (one.role === 'predicted' && predictions <= 2);
      if (state.bands && banded && one.points.some((point) => point.low !== point.high)) {
        series.push(bandSeries(one, axes, one.role === 'predicted' ? 0.09 : 0.18));
      }
      series.push(lineSeries(one, index, axes));
    });
    const x = axisOption(axes.x, axes.left, axes.right);
    const y = axisOption(axes.y, axes.bottom, axes.top);
    const result = {
      animation: false,
      backgroundColor: exported ? colors.panel : 'transparent',
      // No quotes: the library writes the name into an attribute of the SVG as it is.
      textStyle: { fontFamily: 'system-ui, -apple-system, Roboto, sans-serif', color: colors.ink },
      grid: { left: 78, right: 22, top: (exported ? 44 : 14) + (marks.length > 0 ? 8 : 0), bottom: exported ? 96 : 50, outerBoundsMode: 'none' },
      xAxis: { ...x, name: figure.x.label, nameLocation: 'middle', nameGap: 30, nameTextStyle: { color: colors.soft } },
      yAxis: y,
      series,
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
      const names = figure.series.filter((_, index) => state.on[index]).map((one) => one.label);
      result.legend = { show: true, bottom: 6, left: 'center', type: 'plain', data: names, textStyle: { color: colors.soft } };
    }
    return { option: result, axes };
  }

  // ---- Export
  function csv(figure, state) {
    // What a spreadsheet would take for a formula has an apostrophe before it, as in csv.rs.
    const inert = (field) => (/^\s*[=+\-@＝＋－＠]/.test(field) && Number.isNaN(Number(field)) ? "'" + field : field);
    const quote = (field) => (/[",\r\n]/.test(field) ? '"' + inert(field).replace(/"/g, '""') + '"' : inert(field));
    if (figure.kind === 'heat') return heat.csv(figure, quote);
    const lines = ['series,role,x,y,low,high'];
    figure.series.forEach((series, index) => {
      if (!state.on[index]) return;
      for (const point of series.points) {
        lines.push([quote(series.label), series.role, point.x, point.y, point.low, point.high].join(','));
      }
    });
    return lines.join('\r\n') + '\r\n';
  }

  function svg(figure, state) {
    const size = { width: 960, height: 560 };
    const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, ...size });
    const drawn = figure.kind === 'heat' ? heat.option(figure, state, size, true) : option(figure, state, true);
    chart.setOption(drawn.option);
    const drawing = inLight(chart.renderToSVGString());
    chart.dispose();
    return drawing;
  }

  function png(figure, state) {
    return new Promise((resolve, reject) => {
      const image = new Image();
      image.onload = () => {
        const canvas = document.createElement('canvas');
        canvas.width = 1920;
        canvas.height = 1120;
        canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('the browser made no PNG'))), 'image/png');
      };
      image.onerror = () => reject(new Error('the browser could not draw the SVG'));
      image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(svg(figure, state));
    });
  }

  async function make(figure, state, kind) {
    if (kind === 'png') return png(figure, state);
    if (kind === 'svg') return new Blob([svg(figure, state)], { type: 'image/svg+xml' });
    return new Blob([csv(figure, state)], { type: 'text/csv' });
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
      // A browser may refuse its clipboard to a page that was opened from a file.
      save(blob, name);
    }
  }

  // ---- One figure: state, drawing, controls
  function setUp(element) {
    const figure = data.figures[Number(element.dataset.figure)];
    const isHeat = figure.kind === 'heat';
    const state = isHeat ? { cursor: null } : {
      logX: figure.x.logarithmic, logY: figure.y.logarithmic, bands: true, view: null, on: figure.series.map(() => true),
    };
    let chart = null;
    let box = null;
    let axes = null;
    element.querySelector('.controls').append(document.getElementById('export').content.cloneNode(true));
    const canvas = element.querySelector('.canvas');
    const reset = element.querySelector('[data-action="reset"]');

    const draw = () => {
      if (!chart) return;
      if (isHeat) {
        const drawn = heat.option(figure, state, { width: box.clientWidth }, false);
        box.style.height = drawn.height + 'px';
        chart.resize();
        chart.setOption(drawn.option, { notMerge: true });
        return;
      }
      const drawn = option(figure, state, false);
      axes = drawn.axes;
      chart.setOption(drawn.option, { notMerge: true });
      reset.disabled = state.view === null;
    };

    const start = () => {
      if (chart) return;
      box = document.createElement('div');
      box.className = 'chart';
      box.tabIndex = 0;
      box.setAttribute('role', 'group');
      const keys = isHeat ? ' Arrow keys read the cells.' : ' Left and right arrow keys read the values; drag to zoom, Escape shows all.';
      box.setAttribute('aria-label', figure.title + keys);
      canvas.append(box);
      element.classList.add('drawn');
      chart = echarts.init(box, null, { renderer: 'svg' });
      draw();
      if (isHeat) {
        heat.inspect(figure, state, box, chart, draw, say);
      } else {
        inspect(figure, state, box, chart, () => { state.view = null; draw(); });
        zoom(canvas, box, chart, () => axes, (view) => { state.view = view; draw(); });
      }
      watchWidth(box, () => { if (isHeat) draw(); else chart.resize(); });
    };

    for (const button of all('button[data-action]', element)) {
      button.addEventListener('click', () => act(button));
    }
    for (const input of all('input[data-series]', element)) {
      input.addEventListener('change', () => {
        state.on[Number(input.dataset.series)] = input.checked;
        draw();
      });
    }

    async function act(button) {
      const action = button.dataset.action;
      const toggles = { 'log-x': 'logX', 'log-y': 'logY', bands: 'bands' };
      if (action in toggles) {
        state[toggles[action]] = !state[toggles[action]];
        state.view = null;
        button.setAttribute('aria-pressed', String(state[toggles[action]]));
        draw();
      } else if (action === 'reset') {
        state.view = null;
        draw();
      } else {
        const [verb, kind] = action.split('-');
        let blob;
        try {
          blob = await make(figure, state, kind);
        } catch (refused) {
          say('Not exported: ' + refused.message);
          return;
        }
        const name = figure.id + '.' + kind;
        if (verb === 'copy') await copy(blob, name); else save(blob, name);
        const menu = button.closest('details');
        menu.open = false;
        menu.querySelector('summary').focus();
      }
    }
    return { element, start, draw };
  }

  /** Calls `changed` when the width of a box has changed; its height is the figure's own. */
  function watchWidth(box, changed) {
    let width = box.clientWidth;
    new ResizeObserver(() => {
      if (box.clientWidth === width) return;
      width = box.clientWidth;
      changed();
    }).observe(box);
  }

  /** Arrow keys go from point to point and say what is there. */
  function inspect(figure, state, box, chart, showAll) {
    let at = -1;
    box.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { showAll(); say('Whole range'); return; }
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const shown = figure.series.filter((_, index) => state.on[index]);
      const read = shown.filter((series) => series.role !== 'fitted');
      const places = [...new Set(read.flatMap((series) => series.points.map((point) => point.x)))].sort((a, b) => a - b);
      if (places.length === 0) return;
      at = Math.max(0, Math.min(places.length - 1, at + step));
      const found = shown.map((series) => [series, series.points.findIndex((point) => point.x === places[at])])
        .filter(([, index]) => index >= 0);
      const [first, index] = found[0];
      const option = chart.getOption();
      const seriesIndex = option.series.findIndex((one) => one.id === 'series' + figure.series.indexOf(first));
      chart.dispatchAction({ type: 'showTip', seriesIndex, dataIndex: index });
      const values = found.map(([series, i]) => series.label + ' ' + pointText(figure, series, series.points[i]));
      say(text(figure.x.kind, places[at], 6) + ': ' + values.join('; '));
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
