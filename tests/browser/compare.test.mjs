// Pages of `kelvin compare --format html` in a real browser: node tests/browser/compare.test.mjs PAGE.html...
//
// Each must have a ladder and a figure that is worse or better, as the sample has. In the sample every text is hostile:
//   cargo run -p kelvin-report --example sample -- PAGE.html compare
// Pages after --layout have no requirements: only their layout and accessibility are tested.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { THEMES, WIDTHS, fits, isAccessible, launch, open, screenshot, settled } from './page.mjs';

const names = process.argv.slice(2);
const fullTestCount = names.includes('--layout') ? names.indexOf('--layout') : names.length;
const pages = names.filter((name) => name !== '--layout').map((name, index) => ({ path: resolve(name), isWhole: index < fullTestCount }));
if (pages.length === 0) throw new Error('usage: node compare.test.mjs PAGE.html... [--layout PAGE.html...]');
for (const { path } of pages) if (!existsSync(path)) throw new Error(`${path}: no such page`);

for (const { path, isWhole } of pages) describe(basename(path), () => suite(pathToFileURL(path).href, isWhole, basename(path, '.html')));

/** The tests of the page at an address. */
function suite(address, isWhole, name) {
  let browser;
  before(async () => { browser = await launch(); });
  after(() => browser?.close());

  async function withPage(options, body) {
    const { page, context, problems } = await open(browser, address, options);
    try {
      await body(page);
      assert.deepEqual(problems, []);
    } finally {
      await context.close();
    }
  }

  for (const width of WIDTHS) {
    test(`the page fits ${width} px and axe finds nothing serious`, () => withPage({ viewport: { width, height: 900 } }, async (page) => {
      for (const theme of THEMES) {
        await page.emulateMedia({ colorScheme: theme });
        await settled(page);
        await fits(page, `${width} px, ${theme}`);
        if (width !== 768) await isAccessible(page, theme, width);
        if (process.env.SHOTS) await screenshot(page, `${name}-${width}-${theme}`);
        await page.evaluate(() => { for (const details of document.querySelectorAll('details')) details.open = false; });
      }
    }));
  }

  if (!isWhole) return;

  test('no text of a run becomes an element', () => withPage({}, async (page) => {
    assert.equal(await page.locator('script, img, iframe, link, [style]').count(), 0);
    const known = new Set(('html head meta title style body main h1 h2 p b i ul li dl dt dd section table caption thead tbody tr th td span div ' +
      'details summary code wbr svg g path text rect circle a').split(' '));
    const tags = await page.evaluate(() => [...document.querySelectorAll('*')].map((element) => element.tagName.toLowerCase()));
    assert.deepEqual([...new Set(tags)].filter((tag) => !known.has(tag)), []);
    // Bold text is the number of a ratio, or one of the two sentences of the gate.
    const bold = await page.locator('b').allTextContents();
    assert.deepEqual(bold.filter((text) => !/^[\d.]+$|gate/.test(text)), []);
  }));

  test('keys open a figure to its rounds on both sides', () => withPage({}, async (page) => {
    const figure = page.locator('details.compared').first();
    const summary = figure.locator('summary');
    const rounds = figure.locator('.rounds');
    assert.match(await summary.textContent(), /A .*B .*(worse|better|higher|lower)/);
    assert.ok(!(await rounds.isVisible()));
    // As many times as needed from the start of the page.
    const isFocused = () => summary.evaluate((element) => element === document.activeElement);
    for (let presses = 0; presses < 40 && !(await isFocused()); presses += 1) await page.keyboard.press('Tab');
    assert.ok(await isFocused(), 'Tab focuses the figure');
    await page.keyboard.press('Enter');
    assert.ok(await rounds.isVisible());
    const dots = await rounds.locator('.dots').evaluateAll((all) => all.map((element) => element.getBBox().width));
    assert.equal(dots.length, 2);
    assert.ok(dots.every((width) => width > 0), 'rounds of both sides spread');
    await page.keyboard.press('Space');
    assert.ok(!(await rounds.isVisible()));
  }));

  test('what is larger in B lies to the right, on the ladder and on the axis of ratios', () => withPage({}, async (page) => {
    const rungs = await page.locator('.ladder .wide a > g').evaluateAll((all) => all.map((rung) => {
      const [base, other] = ['.ladder-base', '.ladder-dot'].map((mark) => rung.querySelector(mark).cx.baseVal.value);
      return { ratio: parseFloat(rung.querySelector('.ladder-figure').textContent), distance: other - base };
    }));
    await page.evaluate(() => { for (const details of document.querySelectorAll('details.fold')) details.open = true; });
    const figures = await page.locator('details.compared > summary').evaluateAll((all) => all.map((summary) => {
      const centre = (element) => { const { x, width } = element.getBoundingClientRect(); return x + width / 2; };
      const [unity, mark] = ['.one', 'path:last-child'].map((part) => centre(summary.querySelector(`.forest > ${part}`)));
      return { ratio: parseFloat(summary.querySelector('.by b').textContent), distance: mark - unity };
    }));
    assert.ok(rungs.length > 1 && figures.length > 2);
    // A drawing merges two positions that are closer than a tenth of a unit.
    const isVisible = ({ ratio }) => Math.abs(ratio - 1) > 0.02;
    for (const { ratio, distance } of [...rungs, ...figures].filter(isVisible)) assert.equal(Math.sign(distance), Math.sign(ratio - 1), `${ratio}`);
  }));

  test('a rung of the ladder leads to its figure', () => withPage({}, async (page) => {
    const link = page.locator('.ladder .wide a').first();
    const id = (await link.getAttribute('href')).slice(1);
    await link.click();
    await page.locator(`[id="${id}"]:target > summary`).waitFor({ state: 'visible' });
  }));

  test('paper is light and has the figures that are folded away', () => withPage({ colorScheme: 'dark' }, async (page) => {
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(255, 255, 255)');
    const shown = await page.locator('details.compared > summary').evaluateAll((all) => all.map((element) => element.checkVisibility({ contentVisibilityAuto: true })));
    assert.ok(shown.length > 2 && shown.every((isShown) => isShown), 'every figure is on paper');
    const pdf = await page.pdf({ format: 'A4' });
    assert.equal(pdf.subarray(0, 5).toString(), '%PDF-');
  }));

  test('without script it is the same page', () => withPage({ javaScriptEnabled: false }, async (page) => {
    const summary = page.locator('details.compared > summary').first();
    await summary.click();
    assert.ok(await page.locator('details.compared .rounds').first().isVisible());
  }));
}
