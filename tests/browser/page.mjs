// Helpers of the tests of pages in a real browser.
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

/** Opens a page in a context of its own. `problems` has its console errors, exceptions, and requests other than for the file. */
export async function open(browser, address, options, expected = []) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  // A longer wait counts as a hang.
  context.setDefaultTimeout(120000);
  const page = await context.newPage();
  const problems = [];
  page.on('console', (message) => {
    const isExpected = expected.some((word) => message.text().includes(word));
    if (['error', 'warning'].includes(message.type()) && !isExpected) problems.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => problems.push(`exception: ${error.message}`));
  page.on('requestfailed', (request) => problems.push(`failed request: ${request.url()}`));
  page.on('request', (request) => {
    if (!/^(file|data|blob):/.test(request.url())) problems.push(`request: ${request.url()}`);
  });
  await page.goto(address);
  return { page, context, problems };
}

/** Waits until figures are drawn for a new width or theme, which takes a few frames. */
export const settled = (page) => page.evaluate(async () => {
  for (let frame = 0; frame < 4; frame += 1) await new Promise((done) => requestAnimationFrame(done));
});

/** Opens every row and every folded part. */
export async function openAll(page) {
  for (const button of await page.locator('[data-action="expand-all"]').all()) await button.click();
  await page.evaluate(() => { for (const details of document.querySelectorAll('details')) details.open = !details.matches('.menu'); });
}

/** Asserts that nothing overflows the width of the page, closed and open. Leaves everything open. */
export async function fits(page, label) {
  const fitsWidth = () => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
  assert.ok(await fitsWidth(), `${label}: closed`);
  await openAll(page);
  assert.ok(await fitsWidth(), `${label}: with everything open`);
  const overflowing = await page.evaluate(() => {
    const overflows = (cell) => cell.scrollWidth > cell.clientWidth + 1;
    return [...document.querySelectorAll('.results > tbody > tr > *')].filter(overflows).map((cell) => cell.textContent.slice(0, 60));
  });
  assert.deepEqual(overflowing, [], `${label}: no cell overflows into the next`);
}

/** Saves a screenshot of the full page. */
export async function screenshot(page, name) {
  await page.evaluate(() => { for (const details of document.querySelectorAll('details')) details.open = false; });
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`), fullPage: true });
}

/** Rules about colours. A theme changes nothing else. */
const COLOUR_RULES = ['color-contrast', 'link-in-text-block'];

/** Asserts that axe finds no serious violation: by all rules in the first theme, by rules about colours in the other. */
export async function isAccessible(page, theme, width, hasEvery = true) {
  // By the debugging protocol, since the policy of the page permits no other script.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(await readFile(axe, 'utf8'));
  const hasAllRules = theme === THEMES[0];
  // Most of the time is spent on the backgrounds of thousands of texts. They are all checked once, on one of several similar pages.
  // Otherwise a sample of each appearance is checked.
  const hasEveryText = hasEvery && hasAllRules && width === WIDTHS.at(-1);
  const { violations, passes } = await page.evaluate(runAxe, { rules: COLOUR_RULES, hasAllRules, hasEveryText });
  const serious = violations.filter((violation) => ['serious', 'critical'].includes(violation.impact));
  const messages = serious.map((violation) => `${violation.id}: ${violation.help}: ${violation.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
  assert.deepEqual(messages, [], `${width} px, ${theme}`);
  assert.ok(passes.length > (hasAllRules ? 20 : 0), 'axe applied its rules');
}

/** Runs axe in the page, by all rules or by those about colours, on every text or on a sample of each appearance. */
async function runAxe({ rules, hasAllRules, hasEveryText }) {
  const options = { resultTypes: ['violations'] };
  if (hasEveryText) return globalThis.axe.run(document, options);
  const grounds = new Map();
  // The appearance of a text: its font, and the backgrounds of all its ancestors.
  const backgroundsOf = (element) => {
    if (!element) return '';
    if (!grounds.has(element)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(element);
      grounds.set(element, `${backgroundColor} ${backgroundImage} ${opacity};${backgroundsOf(element.parentElement)}`);
    }
    return grounds.get(element);
  };
  const texts = [...document.body.querySelectorAll('*')].filter((element) =>
    element.checkVisibility() && [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  const textsByAppearance = Map.groupBy(texts, (element) => {
    const { color, fontSize, fontWeight, textDecorationLine } = getComputedStyle(element);
    return `${color} ${fontSize} ${fontWeight} ${textDecorationLine} ${element.tagName};${backgroundsOf(element)}`;
  });
  const sample = [...textsByAppearance.values()].flatMap((group) => [...group.slice(0, 3), ...group.slice(3).slice(-2)]);
  const colourResult = await globalThis.axe.run({ include: sample }, { ...options, runOnly: rules });
  if (!hasAllRules) return colourResult;
  const disabled = Object.fromEntries(rules.map((rule) => [rule, { enabled: false }]));
  const otherResult = await globalThis.axe.run(document, { ...options, rules: disabled });
  return { violations: [...colourResult.violations, ...otherResult.violations], passes: [...colourResult.passes, ...otherResult.passes] };
}
