// Units and axes of the figures: the scales of the page's text, and ticks as its drawings have them.
/** The functions that texts and axes are made of. */
function kelvinAxes() {
  'use strict';

  // ---- Units: the same scales as the text of the page.
  const SCALES = {
    nanoseconds: [[1, 'ns'], [1e3, 'µs'], [1e6, 'ms'], [1e9, 's']],
    cycles: [[1, 'cycles'], [1e5, 'kcycles', 1e3], [1e8, 'Mcycles', 1e6]],
    hertz: [[1, 'Hz'], [1e3, 'kHz'], [1e6, 'MHz'], [1e9, 'GHz']],
    bytes: [[1, 'B'], [1024, 'KiB'], [1048576, 'MiB'], [1073741824, 'GiB'], [1099511627776, 'TiB']],
    bytes_per_second: [[1, 'B/s'], [1e3, 'kB/s'], [1e6, 'MB/s'], [1e9, 'GB/s']],
    per_second: [[1, '/s'], [1e3, 'k/s'], [1e6, 'M/s']],
    number: [[1, '']],
    seconds: [[1, 's']],
    share: [[0.01, '%']],
  };

  function scaled(kind, value) {
    let found = SCALES[kind][0];
    for (const scale of SCALES[kind]) if (Math.abs(value) >= scale[0] * 0.9995) found = scale;
    return [value / (found[2] || found[0]), found[1]];
  }

  function text(kind, value, digits) {
    if (value === 0) return '0';
    const [number, unit] = scaled(kind, value);
    const short = String(Number(number.toPrecision(digits)));
    return unit ? short + ' ' + unit : short;
  }

  // ---- Axes: placed as the drawings of the page place them (see scale.rs).
  const ZERO_STEP = 2;

  function makeAxis(kind, logarithmic, values) {
    const positive = values.filter((value) => value > 0);
    const least = Math.min(...positive);
    const log = logarithmic && positive.length > 0;
    const zero = log && values.includes(0) ? Math.log10(least / ZERO_STEP) : null;
    const to = (value) => (!log ? value : value > 0 ? Math.log10(value) : zero);
    return { kind, log, zero, to };
  }

  function extent(axis, values, room, fromZero) {
    const places = values.map(axis.to).filter((place) => place !== null && Number.isFinite(place));
    let low = Math.min(...places);
    let high = Math.max(...places);
    if (!Number.isFinite(low)) return [0, 1];
    if (fromZero && !axis.log && low > 0 && low < 0.6 * high) low = 0;
    // Around a single value there is room for round ticks.
    const alone = axis.log ? 0.35 : Math.abs(low) / 2;
    if (high === low && alone > 0) return [low - alone, high + alone];
    const length = high > low ? high - low : 1;
    return [!axis.log && low === 0 ? 0 : low - room * length, high + room * length];
  }

  function linearTicks(low, high, kind) {
    const rough = (high - low) / 8;
    let step;
    if (kind === 'bytes') {
      step = Math.pow(2, Math.ceil(Math.log2(rough)));
    } else {
      const power = Math.pow(10, Math.floor(Math.log10(rough)));
      step = power * [1, 2, 5, 10].find((mantissa) => mantissa * power >= rough * 0.999);
    }
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) ticks.push(i * step);
    return ticks;
  }

  function logarithmicTicks(axis, low, high) {
    const from = Math.pow(10, low);
    const to = Math.pow(10, high);
    const ticks = [];
    // Small fractions are no round numbers in powers of two: 0.0625.
    if ((axis.kind === 'bytes' || (axis.kind === 'number' && from >= 0.1)) && to / from >= 4) {
      const first = Math.ceil(Math.log2(from));
      const last = Math.floor(Math.log2(to));
      const step = Math.floor((last - first) / 9) + 1;
      for (let power = Math.ceil(first / step) * step; power <= last; power += step) ticks.push(Math.pow(2, power));
      return ticks;
    }
    if (high - low < 0.7) return linearTicks(from, to, axis.kind);
    const mantissas = high - low > 3 ? [1] : [1, 2, 5];
    for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) {
      for (const mantissa of mantissas) ticks.push(mantissa * Math.pow(10, power));
    }
    return ticks;
  }

  /** Ticks of an axis between two places: a label for each place. */
  function ticks(axis, low, high) {
    const values = axis.log ? logarithmicTicks(axis, low, high) : linearTicks(low, high, axis.kind);
    if (axis.zero !== null) values.unshift(0);
    const hair = 1e-9 * (high - low);
    const within = values.filter((value) => axis.to(value) >= low - hair && axis.to(value) <= high + hair);
    // Steps add up to a little more than the tick: nine digits are the tick.
    return new Map(within.map((value) => [axis.to(value), text(axis.kind, value, 9)]));
  }

  return { text, makeAxis, extent, ticks };
}
