// HTML reports in a real browser, all at once: node tests/browser/report.test.mjs REPORT.html... [--layout REPORT.html...]
//
// Reports after --layout have tests of figures and layout only: the rest is the same as in the other reports.
//
// The reports must have figures, as the sample has:
//   cargo run -p kelvin-report --example sample -- REPORT.html
// The argument `hostile` after REPORT.html makes a report in which every text is hostile.
//
// Loading a page and drawing its figures takes seconds of a CPU, so tests that do not change a page share one.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { basename, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { THEMES, WIDTHS, fits, isAccessible, launch, open, screenshot, settled } from './page.mjs';

const names = process.argv.slice(2);
const fullTestCount = names.includes('--layout') ? names.indexOf('--layout') : names.length;
const reports = names.filter((name) => name !== '--layout').map((name, index) => ({ path: resolve(name), isWhole: index < fullTestCount }));
if (reports.length === 0) throw new Error('usage: node report.test.mjs REPORT.html... [--layout REPORT.html...]');
for (const { path } of reports) if (!existsSync(path)) throw new Error(`${path}: no such report`);

/** Scrolls through the page, so that every plot is drawn. Heat maps are drawn from the start. */
const drawAll = (page) => page.evaluate(async () => {
  for (const figure of document.querySelectorAll('figure[data-kind="plot"]')) {
    figure.scrollIntoView({ block: 'center' });
    const deadline = performance.now() + 30000;
    while (!figure.querySelector('.chart svg')) {
      if (performance.now() > deadline) throw new Error(`${figure.id} is not drawn`);
      await new Promise((done) => requestAnimationFrame(done));
    }
  }
});

/** The XML error of an SVG, or undefined. It is parsed on a blank page, since the policy of the report forbids inline styles. */
async function svgError(svg, page) {
  const blank = await page.context().newPage();
  const fault = (text) => new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror')?.textContent;
  try {
    return await blank.evaluate(fault, svg.toString());
  } finally {
    await blank.close();
  }
}

/** Closes every row and every folded part. */
async function closeAll(page) {
  await page.evaluate(() => { for (const details of document.querySelectorAll('details')) details.open = false; });
  for (const button of await page.locator('[data-action="expand-all"]').all()) await button.click();
}

/** Reports whose map of the machine was tested. */
let maps = 0;

describe('reports', { concurrency: availableParallelism() }, () => {
  after(() => assert.ok(maps > 0, 'a report has a map of its machine'));
  reports.forEach(({ path, isWhole }, index) => {
    describe(basename(path), { concurrency: 1 }, () => suite(pathToFileURL(path).href, isWhole, index === fullTestCount - 1));
  });
});

/** The tests of the report at an address: all, or those of figures and layout. With `hasEvery` axe checks every text, else a sample. */
function suite(address, isWhole, hasEvery) {
  let browser;
  before(async () => { browser = await launch(); });
  after(() => browser?.close());

  /** Runs `body` on a page of its own. Each problem of the page is a failure, unless it contains a word of `expected`. */
  async function withReport(options, body, expected = []) {
    const { page, context, problems } = await open(browser, address, options, expected);
    try {
      await body(page, context);
      assert.deepEqual(problems, []);
    } finally {
      await context.close();
    }
  }

  describe('drawn once', () => {
    let shared;
    before(async () => {
      shared = await open(browser, address, { acceptDownloads: true });
      await drawAll(shared.page);
    });
    after(() => shared?.context.close());

    /** A test on the shared page, whose figures are drawn. It must not change the page. */
    const testDrawn = (name, body) => test(name, async () => {
      await body(shared.page, shared.context);
      assert.deepEqual(shared.problems, []);
    });

    testDrawn('every figure is drawn', async (page) => {
      const figures = await page.locator('figure[data-figure]').evaluateAll((all) => all.map((figure) => {
        const isHeat = figure.dataset.kind === 'heat';
        const drawing = figure.querySelector(isHeat ? '.static > svg' : '.chart svg');
        const { width, height } = drawing.getBoundingClientRect();
        return {
          id: figure.id, width, height, isHeat,
          series: figure.querySelectorAll('input[data-series]').length,
          marks: drawing.querySelectorAll('path, rect').length,
          labels: [...drawing.querySelectorAll('text')].filter((text) => text.checkVisibility()).map((text) => text.textContent),
          isStatic: figure.querySelector('.static').checkVisibility(),
        };
      }));
      assert.ok(figures.length > 0, 'the report has figures');
      for (const { id, width, height, isHeat, series, marks, labels, isStatic } of figures) {
        // A heat map is as large as its cells.
        assert.ok(width > (isHeat ? 150 : 250) && height > (isHeat ? 120 : 200), `${id} is ${width} by ${height}`);
        assert.ok(marks >= series, `${id} has marks for ${series} series`);
        assert.ok(labels.length >= 4, `${id} has tick labels`);
        assert.deepEqual(labels.filter((label) => /\d{6}|\.\d{4}/.test(label)), [], `${id} has round tick labels`);
        assert.equal(isStatic, isHeat, `${id}: the drawing without script is replaced`);
      }
    });

    testDrawn('axes, bands and series can be switched', async (page) => {
      const problems = await page.locator('figure[data-kind="plot"]').evaluateAll(switchAll);
      assert.deepEqual(problems, []);
    });

    testDrawn('dragging zooms and Escape shows all', async (page) => {
      const figure = page.locator('figure[data-figure]').nth(1);
      await figure.scrollIntoViewIfNeeded();
      const chart = figure.locator('.chart');
      await chart.locator('svg').waitFor();
      await chart.scrollIntoViewIfNeeded();
      const whole = await chart.innerHTML();
      const { x, y, width, height } = await chart.boundingBox();
      await page.mouse.move(x + width * 0.4, y + height * 0.3);
      await page.mouse.down();
      await page.mouse.move(x + width * 0.8, y + height * 0.7, { steps: 4 });
      await page.mouse.up();
      const reset = figure.locator('[data-action="reset"]');
      assert.ok(await reset.isEnabled(), 'the zoom can be reset');
      assert.notEqual(await chart.innerHTML(), whole);
      await chart.focus();
      await page.keyboard.press('Escape');
      assert.ok(await reset.isDisabled());
      await page.keyboard.press('ArrowRight');
      await page.waitForFunction(() => /: .*\d/.test(document.getElementById('live').textContent));
      await figure.locator('.tip').waitFor({ state: 'visible' });
    });

    testDrawn('heat maps are read by arrow keys, in the legend and as a table', async (page) => {
      for (const figure of await page.locator('figure[data-kind="heat"]').all()) {
        const id = await figure.getAttribute('id');
        await figure.scrollIntoViewIfNeeded();
        const chart = figure.locator('.static');
        const cells = chart.locator('svg > rect[class^="h"]');
        const colours = await figure.locator('.heat-legend li').count();
        assert.ok(await cells.count() > 0 && colours > 0, `${id}: ${await cells.count()} cells, ${colours} colours`);
        await cells.first().hover();
        assert.match(await figure.locator('.tip').textContent(), /: \d/, `${id}: the cell under the pointer is described`);
        await page.mouse.move(0, 0);
        await figure.locator('.tip').waitFor({ state: 'hidden' });
        const rows = await figure.locator('.data table tbody tr').evaluateAll((all) => all.map((row) => [
          row.querySelector('th').textContent, ...[...row.querySelectorAll('td')].map((cell) => cell.textContent)]));
        const announcement = () => page.evaluate(() => document.getElementById('live').textContent);
        await chart.focus();
        // From the first cell along the first row: the announcement equals the table.
        for (let column = 0; column + 1 < rows[0].length; column += 1) {
          await page.evaluate(() => { document.getElementById('live').textContent = ''; });
          await page.keyboard.press('ArrowRight');
          await page.waitForFunction(() => document.getElementById('live').textContent !== '');
          const value = rows[0][column + 1];
          const spoken = (await announcement()).split(': ')[1];
          const isEqual = value === '' ? spoken === 'no value' : spoken.startsWith(value.split(',')[0]);
          assert.ok(isEqual, `${id}: "${spoken}" equals the table: "${value}"`);
          await figure.locator('.tip').waitFor({ state: value === '' ? 'hidden' : 'visible' });
        }
        await page.keyboard.press('ArrowDown');
        await page.waitForFunction((name) => document.getElementById('live').textContent.includes(` ${name} `), rows[1][0]);
        // A best cell is framed, in the legend, and announced.
        const best = rows.flatMap((row, down) => row.map((text, across) => [text, down, across - 1])).find(([text]) => text.endsWith(', best'));
        assert.equal(await figure.locator('.heat-legend .best').count(), best ? 1 : 0);
        assert.equal(await figure.locator('.static > svg > .best').count(), best ? 1 : 0);
        if (best) {
          await chart.blur();
          await chart.focus();
          for (let down = 0; down < best[1]; down += 1) await page.keyboard.press('ArrowDown');
          for (let across = 0; across < best[2]; across += 1) await page.keyboard.press('ArrowRight');
          await page.waitForFunction(() => document.getElementById('live').textContent.endsWith(', best'));
        }
        assert.equal(await figure.locator('.controls [data-action="log-x"]').count(), 0, 'there are no axes to switch');
      }
    });

    testDrawn('heat maps are exported as PNG, SVG and CSV', async (page) => {
      for (const figure of await page.locator('figure[data-kind="heat"]').all()) {
        await figure.scrollIntoViewIfNeeded();
        await page.locator('.draws').waitFor();
        const cells = await figure.locator('.static > svg > rect[class^="h"]').count();
        const saved = {};
        for (const kind of ['png', 'svg', 'csv']) {
          await figure.locator('.menu summary').click();
          const [download] = await Promise.all([page.waitForEvent('download'), figure.locator(`[data-action="save-${kind}"]`).click()]);
          saved[kind] = await readFile(await download.path());
        }
        assert.deepEqual(saved.png.subarray(0, 4), Buffer.from([0x89, 0x50, 0x4e, 0x47]));
        assert.equal(await svgError(saved.svg, page), undefined, 'the SVG is well-formed');
        assert.ok(!saved.svg.includes('var(--'), 'and has colours of its own');
        const lines = saved.csv.toString().trimEnd().split('\r\n');
        assert.match(lines[0], /^[a-z]+,[a-z]+,value,low,high,predicted$/);
        assert.equal(lines.length, cells + 1, 'a line for each cell');
      }
    });

    testDrawn('figures are exported as PNG, SVG and CSV', async (page) => {
      const starts = { png: Buffer.from([0x89, 0x50, 0x4e, 0x47]), svg: Buffer.from('<svg'), csv: Buffer.from('series,role,x,y') };
      const figure = page.locator('figure[data-figure]').nth(1);
      for (const [kind, start] of Object.entries(starts)) {
        await figure.locator('.menu summary').click();
        const [download] = await Promise.all([page.waitForEvent('download'), figure.locator(`[data-action="save-${kind}"]`).click()]);
        const file = await readFile(await download.path());
        assert.ok(download.suggestedFilename().endsWith(`.${kind}`));
        assert.deepEqual(file.subarray(0, start.length), start, `${kind} has its file signature`);
        assert.ok(file.length > 200, `${kind} has ${file.length} bytes`);
        if (kind === 'svg') {
          assert.equal(await svgError(file, page), undefined, 'the SVG is well-formed');
          const bare = await figure.evaluate((element) => JSON.parse(document.getElementById('data').textContent)
            .figures[element.dataset.figure].lines.filter(({ marker }) => !marker || marker === 'dash').length);
          assert.equal(file.toString().match(/fill="#\w+" fill-opacity="0"/g)?.length ?? 0, bare, 'the legend shows markers only of lines with markers');
        }
        if (kind === 'csv') assert.ok(file.toString().split('\r\n').length > 4);
      }
    });

    testDrawn('figures are copied to the clipboard', async (page, context) => {
      await context.grantPermissions(['clipboard-read', 'clipboard-write']);
      const figure = page.locator('figure[data-figure]').nth(1);
      await figure.locator('.menu summary').click();
      await figure.locator('[data-action="copy-csv"]').click();
      await page.waitForFunction(() => document.getElementById('live').textContent.startsWith('Copied'));
      assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^series,role,x,y,low,high\r?\n/);
      await figure.locator('.menu summary').click();
      await figure.locator('[data-action="copy-png"]').click();
      await page.waitForFunction(() => /Copied .*png/.test(document.getElementById('live').textContent));
      const types = await page.evaluate(async () => (await navigator.clipboard.read()).flatMap((item) => item.types));
      assert.deepEqual(types, ['image/png']);
    });
  });

  for (const width of WIDTHS) {
    test(`the page fits ${width} px${isWhole ? ' and axe finds nothing serious' : ''}`, () => withReport(
      { viewport: { width, height: 900 }, colorScheme: 'light' },
      async (page) => {
        await drawAll(page);
        if (width === WIDTHS[0]) await cardsAreATable(page);
        for (const theme of THEMES) {
          await page.emulateMedia({ colorScheme: theme });
          await settled(page);
          await fits(page, `${width} px, ${theme}`);
          if (theme === THEMES[0] && await page.locator('.topology').count() > 0) {
            await mapFits(page, `${width} px`);
            maps += 1;
          }
          if (theme === THEMES[0]) await heatMapsAreLegible(page, `${width} px`);
          if (isWhole && width !== 768) await isAccessible(page, theme, width, hasEvery);
          if (process.env.SHOTS) await screenshot(page, `${width}-${theme}`);
          await closeAll(page);
        }
      },
    ));
  }

  if (!isWhole) return;

  test('nothing but the page\'s own script and style takes effect', () => withReport({}, async (page) => {
    const result = await page.evaluate(async () => {
      const blocked = [];
      addEventListener('securitypolicyviolation', (event) => blocked.push(event.effectiveDirective));
      const attempt = document.createElement('div');
      attempt.innerHTML = '<svg onload="document.title = 1"></svg><img src="data:," onerror="document.title = 2"><b style="color: red">';
      document.body.append(attempt);
      const script = document.createElement('script');
      script.textContent = 'document.title = 3';
      document.body.append(script);
      await new Promise((done) => { setTimeout(done, 200); });
      return { title: document.title, blocked: [...new Set(blocked)].sort() };
    });
    assert.deepEqual(result.blocked, ['script-src-attr', 'script-src-elem', 'style-src-attr']);
    assert.match(result.title, /^kelvin: /);
  }, ['Content Security Policy']));

  test('the theme goes from automatic to light to dark and is kept', () => withReport({ colorScheme: 'light' }, async (page) => {
    await drawAll(page);
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const stroke = () => page.locator('.chart svg path[stroke]').first().evaluate((path) => getComputedStyle(path).stroke);
    const button = page.locator('#theme');
    const [light, lightStroke] = [await background(), await stroke()];
    await button.click();
    assert.equal(await button.textContent(), 'Theme: light');
    assert.equal(await background(), light);
    await button.click();
    assert.equal(await button.textContent(), 'Theme: dark');
    assert.notEqual(await background(), light);
    assert.notEqual(await stroke(), lightStroke, 'figures follow the theme');
    await page.reload();
    // The page is loaded before its script has run.
    await page.locator('#theme', { hasText: 'Theme: dark' }).waitFor();
  }));

  test('keys skip to the results, open rows, and a row leads to its method, which opens', () => withReport({}, async (page) => {
    await skipLink(page);
    await rowsOpen(page);
    await methodOpens(page);
  }));

  test('paper shows drawings and tables, open and light', () => withReport({ colorScheme: 'dark' }, async (page) => {
    await drawAll(page);
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
    await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
    const shown = await page.locator('figure[data-figure]').evaluateAll((all) => all.map((figure) =>
      ['.static svg', '.chart', '.data table', '.controls'].map((part) => figure.querySelector(part)?.checkVisibility() ?? false)));
    for (const parts of shown) assert.deepEqual(parts, [true, false, true, false], 'a drawing and its table');
    assert.ok(!(await page.locator('#theme').isVisible()));
    assert.ok(!(await page.locator('nav').isVisible()));
    const hidden = await page.locator('tr.detail').evaluateAll((rows) => rows.filter((row) => row.offsetHeight === 0).length);
    assert.equal(hidden, 0, 'every derivation is on paper');
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(255, 255, 255)');
    const ink = await page.evaluate(() => getComputedStyle(document.body).color);
    assert.ok(ink.match(/\d+/g).every((part) => Number(part) < 80), `dark ink: ${ink}`);
    await page.evaluate(() => dispatchEvent(new Event('afterprint')));
    assert.equal(await page.locator('details.data[open]').count(), 0, 'what print opened is closed again');
    const pdf = await page.pdf({ format: 'A4' });
    assert.equal(pdf.subarray(0, 5).toString(), '%PDF-');
  }));

  test('without script all rows, drawings and tables are there', () => withReport({ javaScriptEnabled: false }, async (page) => {
    const figures = await page.locator('figure[data-figure]').evaluateAll((all) => all.map((figure) => {
      figure.querySelector('details.data > summary').click();
      const [drawing, table, controls] = ['.static svg', '.data table', '.controls'].map((part) => figure.querySelector(part));
      return [drawing, table, controls].map((part) => part.checkVisibility()).concat(drawing.querySelectorAll('path, rect, text').length > 3);
    }));
    assert.ok(figures.length > 0);
    for (const parts of figures) assert.deepEqual(parts, [true, true, false, true], 'a drawing with marks and its table');
    assert.ok(!(await page.locator('#theme').isVisible()));
    for (const folded of await page.locator('details.folded > summary').all()) await folded.click();
    const details = await page.locator('tr.detail').evaluateAll((all) => all.map((detail) => detail.checkVisibility()));
    assert.ok(details.length > 0 && details.every((shown) => shown), 'every derivation is there');
    const { width } = await page.locator('body').boundingBox();
    assert.ok(width <= 1400);
  }));
}

/** Runs in the page: presses every switch of the figures twice. Returns the problems. */
async function switchAll(figures) {
  const problems = [];
  const expect = (condition, message) => { if (!condition) problems.push(message); };
  // Clicks at the position of the control, where another element could cover it. Figures are drawn with the next frame.
  const press = async (control, what) => {
    control.scrollIntoView({ block: 'center' });
    const { x, y, width, height } = control.getBoundingClientRect();
    expect(document.elementFromPoint(x + width / 2, y + height / 2) === control, `${what} can be reached`);
    control.click();
    await new Promise((done) => requestAnimationFrame(done));
  };
  const colours = (element) => [getComputedStyle(element).stroke, getComputedStyle(element).fill];
  for (const figure of figures) {
    const chart = figure.querySelector('.chart');
    for (const action of ['log-x', 'log-y', 'bands']) {
      const button = figure.querySelector(`[data-action="${action}"]`);
      // A figure without intervals has no bands, and a figure with only zeros has no logarithmic axis.
      if (!button) continue;
      const [what, chartBefore, pressed] = [`${figure.id}: ${action}`, chart.innerHTML, button.getAttribute('aria-pressed')];
      await press(button, what);
      expect(button.getAttribute('aria-pressed') !== pressed, `${what} is pressed`);
      expect(chart.innerHTML !== chartBefore, `${what} changes the figure`);
      expect(!/NaN|Infinity/.test(chart.innerHTML), `${what} leaves numbers`);
      await press(button, what);
      expect(button.getAttribute('aria-pressed') === pressed, `${what} is pressed back`);
    }
    const box = figure.querySelector('input[data-series]');
    const swatch = [...box.parentElement.querySelectorAll('.swatch *')].flatMap(colours).find((colour) => colour.startsWith('rgb'));
    // The marks in the colour of the series. The grid may have more lines with a smaller range.
    const marks = () => [...chart.querySelectorAll('svg path')].filter((path) => colours(path).includes(swatch)).length;
    const before = marks();
    await press(box, `${figure.id}: a series`);
    expect(!box.checked && marks() < before, `${figure.id}: a series that is off is gone`);
    await press(box, `${figure.id}: a series`);
    expect(box.checked && marks() === before, `${figure.id}: a series that is on is back`);
  }
  return problems;
}

async function skipLink(page) {
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
}

async function rowsOpen(page) {
  const button = page.locator('[data-expand] > button').first();
  const detail = page.locator(`#${await button.getAttribute('aria-controls')}`);
  assert.ok(!(await detail.isVisible()));
  await button.focus();
  await page.keyboard.press('Enter');
  assert.equal(await button.getAttribute('aria-expanded'), 'true');
  assert.ok(await detail.isVisible());
  assert.match(await detail.textContent(), /Prediction/);
  await page.keyboard.press('Space');
  assert.ok(!(await detail.isVisible()));
  const all = page.locator('[data-action="expand-all"]').first();
  await all.click();
  const section = page.locator('main > section:has([data-action="expand-all"])').first();
  assert.ok(await section.locator('[data-expand] > button').count() > 0);
  assert.equal(await section.locator('[data-expand] > button[aria-expanded="false"]').count(), 0);
  await all.click();
  assert.equal(await section.locator('[data-expand] > button[aria-expanded="true"]').count(), 0);
}

async function methodOpens(page) {
  const links = page.locator('.to-method a');
  assert.ok(await links.count() > 0, 'rows have methods');
  for (const button of await page.locator('[data-action="expand-all"]').all()) await button.click();
  const link = links.first();
  const method = page.locator(`[id="${(await link.getAttribute('href')).slice(1)}"]`);
  assert.equal(await method.getAttribute('open'), null);
  await link.click();
  assert.equal(await method.getAttribute('open'), '');
  await page.waitForFunction((id) => {
    const { top } = document.getElementById(id).getBoundingClientRect();
    return top >= 0 && top < innerHeight;
  }, await method.getAttribute('id'));
  await page.reload();
  assert.equal(await method.getAttribute('open'), '', 'a page that is opened at a method shows it');
}

/** Asserts that each box of the map of the machine is within its parent and beside its siblings, and each CPU in one box. */
async function mapFits(page, label) {
  const { problems, cpus } = await page.locator('.topology').evaluate((map) => {
    const problems = [];
    for (const box of map.querySelectorAll('li')) {
      const name = box.textContent.slice(0, 40);
      const [inner, outer] = [box, box.parentElement.closest('li') ?? map].map((element) => element.getBoundingClientRect());
      const isWithin = inner.left >= outer.left && inner.right <= outer.right + 0.5 && inner.top >= outer.top && inner.bottom <= outer.bottom + 0.5;
      if (!isWithin) problems.push(`${name} is beyond its parent`);
      if (box.scrollWidth > box.clientWidth + 1) problems.push(`${name} is beyond its box`);
      const next = box.nextElementSibling?.getBoundingClientRect();
      if (next && next.left < inner.right && next.top < inner.bottom) problems.push(`${name} is below its sibling`);
    }
    return { problems, cpus: [...map.querySelectorAll('.cores > li')].flatMap((core) => core.textContent.split(' ')) };
  });
  assert.deepEqual(problems, [], label);
  assert.ok(cpus.length > 1 && new Set(cpus).size === cpus.length, `${label}: ${cpus.length} CPUs`);
}

/** Asserts that the letters of heat maps are at least 8 px high, and that a wider one scrolls in its own box. */
async function heatMapsAreLegible(page, label) {
  const heights = await page.locator('figure[data-kind="heat"] .static > svg').evaluateAll((all) => all.map((drawing) => {
    const box = drawing.parentElement;
    const scrolls = ['auto', 'scroll'].includes(getComputedStyle(box).overflowX);
    return [box.closest('figure').id, 12 * drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width, scrolls || box.scrollWidth <= box.clientWidth];
  }));
  for (const [id, letter, isContained] of heights) {
    assert.ok(letter >= 8, `${label}: ${id} has letters of ${letter} px`);
    assert.ok(isContained, `${label}: ${id} scrolls in its box`);
  }
}

async function cardsAreATable(page) {
  const table = page.locator('table.results').first();
  const rows = await table.getByRole('row').count();
  assert.ok(rows > 1 && (await table.getByRole('rowheader').count()) > 0 && (await table.getByRole('cell').count()) > rows);
  // Each cell of a card names itself.
  const labels = await table.locator(':scope > tbody > tr:first-child > td:not(.missing)').evaluateAll((cells) => cells.map((cell) =>
    [cell.cellIndex, getComputedStyle(cell, '::before').content]));
  const names = await table.locator(':scope > thead th').allTextContents();
  assert.ok(labels.length > 0);
  for (const [index, label] of labels) assert.equal(label, `"${names[index]}"`);
}
