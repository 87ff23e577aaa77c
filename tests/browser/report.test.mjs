// The HTML report in a real browser: node tests/browser/report.test.mjs REPORT.html
//
// Needs Chromium (CHROMIUM names it, default /usr/bin/chromium) and `npm ci` in this directory. Screenshots go to the
// directory that SHOTS names, if it is set. The report must have figures, as the sample has:
//   cargo run -p kelvin-report --example sample -- REPORT.html
// and again with `REPORT.html hostile` for one in which every text tries to break out.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const report = resolve(process.argv[2] ?? process.env.REPORT ?? 'report.html');
if (!existsSync(report)) throw new Error(`${report}: no such report; usage: node report.test.mjs REPORT.html`);
const address = pathToFileURL(report).href;
const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
const WIDTHS = [360, 768, 1400];
const THEMES = ['light', 'dark'];

let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: [
      '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync',
    ],
  });
});
after(() => browser?.close());

/**
 * Runs `body` on a page with the report; any console error, exception or request beyond the file fails it, unless it is one
 * that has a word of `expected`.
 */
async function withReport(options, body, expected = []) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  const page = await context.newPage();
  const troubles = [];
  page.on('console', (message) => {
    const isExpected = expected.some((word) => message.text().includes(word));
    if (['error', 'warning'].includes(message.type()) && !isExpected) troubles.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => troubles.push(`exception: ${error.message}`));
  page.on('requestfailed', (request) => troubles.push(`failed request: ${request.url()}`));
  page.on('request', (request) => {
    if (!/^(file|data|blob):/.test(request.url())) troubles.push(`request: ${request.url()}`);
  });
  try {
    await page.goto(address);
    await body(page, context);
    assert.deepEqual(troubles, []);
  } finally {
    await context.close();
  }
}

/** Scrolls through the page, so that every figure is drawn. */
async function drawAll(page) {
  for (const figure of await page.locator('figure[data-figure]').all()) {
    await figure.scrollIntoViewIfNeeded();
    await figure.locator('.chart svg').waitFor();
  }
}

/** Why an SVG is not well-formed, if it is not; asked on a blank page, for styles inside of it are against the policy of the report. */
async function faultOf(svg, context) {
  const blank = await context.newPage();
  const fault = (text) => new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror')?.textContent;
  try {
    return await blank.evaluate(fault, svg.toString());
  } finally {
    await blank.close();
  }
}

const marks = (figure) => figure.locator('.chart svg path').count();

/** What of a figure is drawn in the colour of the series that a box stands for; the grid may gain lines with a smaller range. */
const inItsColour = (figure, box) => box.evaluate((input, id) => {
  const colours = (element) => [getComputedStyle(element).stroke, getComputedStyle(element).fill];
  const swatch = [...input.parentElement.querySelectorAll('.swatch *')].flatMap(colours).find((colour) => colour.startsWith('rgb'));
  const drawn = document.getElementById(id).querySelectorAll('.chart svg path');
  return [...drawn].filter((path) => colours(path).includes(swatch)).length;
}, figure);

test('every figure is drawn, without a complaint of the browser', () => withReport({}, async (page) => {
  await drawAll(page);
  const figures = await page.locator('figure[data-figure]').all();
  assert.ok(figures.length > 0, 'the report has figures');
  for (const figure of figures) {
    const id = await figure.getAttribute('id');
    const box = await figure.locator('.chart svg').boundingBox();
    // A heat map is as tall as its rows.
    const least = (await figure.locator('.heat-legend').count()) > 0 ? 120 : 200;
    assert.ok(box.width > 250 && box.height > least, `${id} is ${box.width} by ${box.height}`);
    const series = await figure.locator('input[data-series]').count();
    assert.ok(await marks(figure) >= series, `${id} has marks for ${series} series`);
    const labels = await figure.locator('.chart svg text').allTextContents();
    assert.ok(labels.length >= 4, `${id} has tick labels`);
    assert.deepEqual(labels.filter((label) => /\d{6}|\.\d{4}/.test(label)), [], `${id} has round tick labels`);
    assert.ok(!(await figure.locator('.static').isVisible()), `${id}: the drawing without script is replaced`);
  }
}));

test('nothing but the page\'s own script and style takes effect', () => withReport({}, async (page) => {
  const tried = await page.evaluate(async () => {
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
  assert.deepEqual(tried.blocked, ['script-src-attr', 'script-src-elem', 'style-src-attr']);
  assert.match(tried.title, /^kelvin: /);
}, ['Content Security Policy']));

test('the theme goes from automatic to light to dark and is kept', () => withReport({ colorScheme: 'light' }, async (page) => {
  await drawAll(page);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const stroke = () => page.locator('.chart svg path[stroke]').first().getAttribute('stroke');
  const button = page.locator('#theme');
  const [light, lightStroke] = [await ground(), await stroke()];
  await button.click();
  assert.equal(await button.textContent(), 'Theme: light');
  assert.equal(await ground(), light);
  await button.click();
  assert.equal(await button.textContent(), 'Theme: dark');
  assert.notEqual(await ground(), light);
  assert.notEqual(await stroke(), lightStroke, 'figures follow the theme');
  await page.reload();
  assert.equal(await page.locator('#theme').textContent(), 'Theme: dark');
}));

test('axes, bands and series can be switched', () => withReport({}, async (page) => {
  await drawAll(page);
  for (const figure of await page.locator('figure[data-kind="plot"]').all()) {
    const id = await figure.getAttribute('id');
    const picture = () => figure.locator('.chart svg').innerHTML();
    for (const action of ['log-x', 'log-y', 'bands']) {
      const button = figure.locator(`[data-action="${action}"]`);
      // A figure without intervals has no bands to switch, and one of nothing but zeros no logarithm.
      if ((await button.count()) === 0) continue;
      const [was, pressed] = [await picture(), await button.getAttribute('aria-pressed')];
      await button.click();
      assert.notEqual(await button.getAttribute('aria-pressed'), pressed);
      assert.notEqual(await picture(), was, `${id}: ${action} changes the figure`);
      assert.ok(!/NaN|Infinity/.test(await picture()), `${id}: ${action} leaves numbers`);
      await button.click();
      assert.equal(await button.getAttribute('aria-pressed'), pressed);
    }
    const box = figure.locator('input[data-series]').first();
    const before = await inItsColour(id, box);
    await box.uncheck();
    assert.ok(await inItsColour(id, box) < before, `${id}: a series that is off is gone`);
    await box.check();
    assert.equal(await inItsColour(id, box), before);
  }
}));

test('dragging zooms and Escape shows all', () => withReport({}, async (page) => {
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
  assert.ok(await reset.isEnabled(), 'there is something to go back from');
  assert.notEqual(await chart.innerHTML(), whole);
  await chart.focus();
  await page.keyboard.press('Escape');
  assert.ok(await reset.isDisabled());
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => /: .*\d/.test(document.getElementById('live').textContent));
  assert.ok(await figure.locator('.tip').isVisible(), 'the point that is read is shown');
}));

test('heat maps are read by arrow keys, in the legend and as a table', () => withReport({}, async (page) => {
  for (const figure of await page.locator('figure[data-kind="heat"]').all()) {
    const id = await figure.getAttribute('id');
    await figure.scrollIntoViewIfNeeded();
    const chart = figure.locator('.chart');
    await chart.locator('svg').waitFor();
    const cells = await figure.locator('.static rect[class^="h"]').count();
    const colours = await figure.locator('.heat-legend li').count();
    assert.ok(cells > 0 && colours > 0, `${id}: ${cells} cells, ${colours} colours`);
    const fills = await chart.locator('svg path').evaluateAll((paths) => paths.map((path) => path.getAttribute('fill')));
    const light = await page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue('--h0').trim());
    assert.ok(fills.includes(light), `${id}: the lowest value has the first colour`);
    const rows = await figure.locator('.data table tbody tr').evaluateAll((all) => all.map((row) => [
      row.querySelector('th').textContent, ...[...row.querySelectorAll('td')].map((cell) => cell.textContent)]));
    const said = () => page.evaluate(() => document.getElementById('live').textContent);
    await chart.focus();
    // From the first cell along the first row: what is said is what the table says.
    for (let column = 0; column + 1 < rows[0].length; column += 1) {
      await page.evaluate(() => { document.getElementById('live').textContent = ''; });
      await page.keyboard.press('ArrowRight');
      await page.waitForFunction(() => document.getElementById('live').textContent !== '');
      const value = rows[0][column + 1];
      const spoken = (await said()).split(': ')[1];
      // The table has three digits, the voice four.
      const same = value === '' ? spoken === 'no number' : Math.abs(parseFloat(spoken) / parseFloat(value) - 1) < 0.006;
      assert.ok(same, `${id}: "${spoken}" is what the table says: "${value}"`);
      assert.equal(await figure.locator('.tip').isVisible(), value !== '', `${id}: a value that is read is shown`);
    }
    await page.keyboard.press('ArrowDown');
    await page.waitForFunction((name) => document.getElementById('live').textContent.includes(` ${name} `), rows[1][0]);
    // Where there is a best cell it is framed, in the legend, and said.
    const best = rows.flatMap((row, down) => row.map((text, across) => [text, down, across - 1])).find(([text]) => text.endsWith(', best'));
    assert.equal(await figure.locator('.heat-legend .best').count(), best ? 1 : 0);
    assert.equal(await figure.locator('.static > svg > .best').count(), best ? 1 : 0);
    if (best) {
      await chart.blur();
      await chart.focus();
      for (let down = 0; down < best[1]; down += 1) await page.keyboard.press('ArrowDown');
      for (let across = 0; across < best[2]; across += 1) await page.keyboard.press('ArrowRight');
      await page.waitForFunction(() => document.getElementById('live').textContent.endsWith(', the best'));
    }
    assert.equal(await figure.locator('.controls [data-action="log-x"]').count(), 0, 'there are no axes to switch');
  }
}));

test('heat maps are exported as PNG, SVG and CSV', () => withReport({ acceptDownloads: true }, async (page, context) => {
  for (const figure of await page.locator('figure[data-kind="heat"]').all()) {
    await figure.scrollIntoViewIfNeeded();
    await figure.locator('.chart svg').waitFor();
    const cells = await figure.locator('.static rect[class^="h"]').count();
    const saved = {};
    for (const kind of ['png', 'svg', 'csv']) {
      await figure.locator('.menu summary').click();
      const [download] = await Promise.all([page.waitForEvent('download'), figure.locator(`[data-action="save-${kind}"]`).click()]);
      saved[kind] = await readFile(await download.path());
    }
    assert.deepEqual(saved.png.subarray(0, 4), Buffer.from([0x89, 0x50, 0x4e, 0x47]));
    assert.equal(await faultOf(saved.svg, context), undefined, 'the SVG is well-formed');
    const lines = saved.csv.toString().trimEnd().split('\r\n');
    assert.match(lines[0], /^[a-z]+,[a-z]+,value,low,high,predicted$/);
    assert.equal(lines.length, cells + 1, 'a line for each cell');
  }
}));

test('rows open by keyboard', () => withReport({}, async (page) => {
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
}));

test('a row leads to its method, which opens', () => withReport({}, async (page) => {
  const links = page.locator('.to-method a');
  if ((await links.count()) === 0) return;
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
}));

test('rows of the results are a table to a screen reader, as cards too', () => withReport({ viewport: { width: 360, height: 800 } }, async (page) => {
  const table = page.locator('table.results').first();
  const rows = await table.getByRole('row').count();
  assert.ok(rows > 1 && (await table.getByRole('rowheader').count()) > 0 && (await table.getByRole('cell').count()) > rows);
  // Each cell of a card says what it is.
  const labels = await table.locator(':scope > tbody > tr:first-child > td:not(.missing)').evaluateAll((cells) => cells.map((cell) =>
    [cell.cellIndex, getComputedStyle(cell, '::before').content]));
  const names = await table.locator(':scope > thead th').allTextContents();
  assert.ok(labels.length > 0);
  for (const [index, label] of labels) assert.equal(label, `"${names[index]}"`);
}));

test('the skip link comes first and leads to the results', () => withReport({}, async (page) => {
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
}));

test('figures are exported as PNG, SVG and CSV', () => withReport({ acceptDownloads: true }, async (page, context) => {
  await drawAll(page);
  const starts = { png: Buffer.from([0x89, 0x50, 0x4e, 0x47]), svg: Buffer.from('<svg'), csv: Buffer.from('series,role,x,y') };
  const figure = page.locator('figure[data-figure]').nth(1);
  for (const [kind, start] of Object.entries(starts)) {
    await figure.locator('.menu summary').click();
    const [download] = await Promise.all([page.waitForEvent('download'), figure.locator(`[data-action="save-${kind}"]`).click()]);
    const file = await readFile(await download.path());
    assert.ok(download.suggestedFilename().endsWith(`.${kind}`));
    assert.deepEqual(file.subarray(0, start.length), start, `${kind} begins as one`);
    assert.ok(file.length > 200, `${kind} has ${file.length} bytes`);
    if (kind === 'svg') assert.equal(await faultOf(file, context), undefined, 'the SVG is well-formed');
    if (kind === 'csv') assert.ok(file.toString().split('\r\n').length > 4);
  }
}));

test('figures are copied to the clipboard', () => withReport({}, async (page, context) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await drawAll(page);
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
}));

for (const width of WIDTHS) {
  for (const colorScheme of THEMES) {
    test(`the page fits ${width} px, ${colorScheme}`, () => withReport(
      { viewport: { width, height: 800 }, colorScheme },
      async (page) => {
        await drawAll(page);
        const inside = () => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
        assert.ok(await inside(), 'closed');
        for (const button of await page.locator('[data-action="expand-all"]').all()) await button.click();
        await page.evaluate(() => { for (const one of document.querySelectorAll('details')) one.open = !one.matches('.menu'); });
        assert.ok(await inside(), 'with everything open');
        const spilling = await page.evaluate(() => {
          const wide = (cell) => cell.scrollWidth > cell.clientWidth + 1;
          return [...document.querySelectorAll('.results > tbody > tr > *')].filter(wide).map((cell) => cell.textContent.slice(0, 60));
        });
        assert.deepEqual(spilling, [], 'no cell spills into the next');
        if (process.env.SHOTS) {
          await page.evaluate(() => { for (const one of document.querySelectorAll('details')) one.open = false; });
          for (const button of await page.locator('[data-action="expand-all"]').all()) await button.click();
          await page.evaluate(() => scrollTo(0, 0));
          await page.screenshot({ path: join(process.env.SHOTS, `${width}-${colorScheme}.png`), fullPage: true });
        }
      },
    ));
  }
}

test('paper shows drawings and tables, open and light', () => withReport({ colorScheme: 'dark' }, async (page) => {
  await drawAll(page);
  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  for (const figure of await page.locator('figure[data-figure]').all()) {
    assert.ok(await figure.locator('.static svg').isVisible());
    assert.ok(!(await figure.locator('.chart').isVisible()));
    assert.ok(await figure.locator('.data table').isVisible());
    assert.ok(!(await figure.locator('.controls').isVisible()));
  }
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
  const figures = await page.locator('figure[data-figure]').all();
  assert.ok(figures.length > 0);
  for (const figure of figures) {
    assert.ok(await figure.locator('.static svg').isVisible());
    assert.ok(await figure.locator('.static svg :is(path, rect, text)').count() > 3);
    assert.ok(!(await figure.locator('.controls').isVisible()));
    await figure.locator('details.data > summary').click();
    assert.ok(await figure.locator('.data table').isVisible());
  }
  assert.ok(!(await page.locator('#theme').isVisible()));
  for (const folded of await page.locator('details.folded > summary').all()) await folded.click();
  for (const detail of await page.locator('tr.detail').all()) assert.ok(await detail.isVisible());
  const { width } = await page.locator('body').boundingBox();
  assert.ok(width <= 1400);
}));

for (const colorScheme of THEMES) {
  for (const width of [360, 1400]) {
    test(`axe finds nothing serious at ${width} px, ${colorScheme}`, () => withReport(
      { colorScheme, viewport: { width, height: 900 } },
      async (page) => {
        await drawAll(page);
        for (const button of await page.locator('[data-action="expand-all"]').all()) await button.click();
        await page.evaluate(() => { for (const one of document.querySelectorAll('details')) one.open = !one.matches('.menu'); });
        // As the browser's owner, for the page's own policy lets no other script in.
        await page.evaluate(await readFile(axe, 'utf8'));
        const { violations, passes } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
        const bad = violations.filter((one) => ['serious', 'critical'].includes(one.impact));
        const said = bad.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
        assert.deepEqual(said, []);
        assert.ok(passes.length > 20, 'axe did look');
      },
    ));
  }
}
