// What tests of pages in a real browser have in common.
//
// Needs Chromium (CHROMIUM names it, default /usr/bin/chromium) and `npm ci` in this directory. Screenshots go to the
// directory that SHOTS names, if it is set.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
export const WIDTHS = [360, 768, 1400];
export const THEMES = ['light', 'dark'];

/** A browser of its own for each report: all pages of one browser share one clipboard. */
export const launch = () => chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
});

/** A page with a report, in a context of its own, and what went wrong in it: console errors, exceptions, requests beyond the file. */
export async function open(browser, address, options, expected = []) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  // A longer wait counts as hanging.
  context.setDefaultTimeout(120000);
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
  await page.goto(address);
  return { page, context, troubles };
}

/** Waits until figures have followed a new width or theme: they do with the next frames. */
export const settled = (page) => page.evaluate(async () => {
  for (let frame = 0; frame < 4; frame += 1) await new Promise((done) => requestAnimationFrame(done));
});

/** Opens every row and every part that folds. */
export async function openAll(page) {
  for (const button of await page.locator('[data-action="expand-all"]').all()) await button.click();
  await page.evaluate(() => { for (const one of document.querySelectorAll('details')) one.open = !one.matches('.menu'); });
}

/** That nothing spills over the side, closed and with everything open, which it is left with. */
export async function fits(page, what) {
  const inside = () => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
  assert.ok(await inside(), `${what}: closed`);
  await openAll(page);
  assert.ok(await inside(), `${what}: with everything open`);
  const spilling = await page.evaluate(() => {
    const wide = (cell) => cell.scrollWidth > cell.clientWidth + 1;
    return [...document.querySelectorAll('.results > tbody > tr > *')].filter(wide).map((cell) => cell.textContent.slice(0, 60));
  });
  assert.deepEqual(spilling, [], `${what}: no cell spills into the next`);
}

/** A picture of the whole page with every row open. */
export async function screenshot(page, name) {
  await page.evaluate(() => { for (const one of document.querySelectorAll('details')) one.open = false; });
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`), fullPage: true });
}

/** Rules about colours, which are all that a theme changes. */
const OF_COLOURS = ['color-contrast', 'link-in-text-block'];

/** That axe finds nothing serious: of all rules in the first theme, of those about colours in the other. */
export async function isAccessible(page, theme, width, hasEvery = true) {
  // As the browser's owner, as the page's own policy allows no other script.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(await readFile(axe, 'utf8'));
  const everything = theme === THEMES[0];
  // Checking the background of thousands of texts takes most of the time. It is done once, and else for some of each look: of several
  // pages with the same looks for one.
  const every = hasEvery && everything && width === WIDTHS.at(-1);
  const { violations, passes } = await page.evaluate(runAxe, { rules: OF_COLOURS, everything, every });
  const bad = violations.filter((one) => ['serious', 'critical'].includes(one.impact));
  const said = bad.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
  assert.deepEqual(said, [], `${width} px, ${theme}`);
  assert.ok(passes.length > (everything ? 20 : 0), 'axe did look');
}

/** In the page: what axe finds, by all rules or by those about colours, with every text looked at or some of each look. */
async function runAxe({ rules, everything, every }) {
  const options = { resultTypes: ['violations'] };
  if (every) return globalThis.axe.run(document, options);
  const seen = new Map();
  // The appearance of a text: its letters, and all that is behind them.
  const ground = (element) => {
    if (!element) return '';
    if (!seen.has(element)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(element);
      seen.set(element, `${backgroundColor} ${backgroundImage} ${opacity};${ground(element.parentElement)}`);
    }
    return seen.get(element);
  };
  const texts = [...document.body.querySelectorAll('*')].filter((element) =>
    element.checkVisibility() && [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  const looks = Map.groupBy(texts, (element) => {
    const { color, fontSize, fontWeight, textDecorationLine } = getComputedStyle(element);
    return `${color} ${fontSize} ${fontWeight} ${textDecorationLine} ${element.tagName};${ground(element)}`;
  });
  const some = [...looks.values()].flatMap((alike) => [...alike.slice(0, 3), ...alike.slice(3).slice(-2)]);
  const ofColours = await globalThis.axe.run({ include: some }, { ...options, runOnly: rules });
  if (!everything) return ofColours;
  const off = Object.fromEntries(rules.map((rule) => [rule, { enabled: false }]));
  const others = await globalThis.axe.run(document, { ...options, rules: off });
  return { violations: [...ofColours.violations, ...others.violations], passes: [...ofColours.passes, ...others.passes] };
}
