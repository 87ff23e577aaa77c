// Makes ../echarts.deflate, ../echarts.sha256.txt with the hash by which the page's policy knows what is packed in it, and the
// sums of what they were made from and of themselves: `npm ci && npm run build` in this directory. `npm run check` says
// whether they would be made as they are.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { constants, deflateRawSync, inflateRawSync } from 'node:zlib';

const MADE = '../echarts.deflate';
const HASH = '../echarts.sha256.txt';
const FROM = ['build.mjs', 'charts.mjs', 'package.json', 'package-lock.json'];

// The official build begins with the notices of all that goes into it.
const official = await readFile('node_modules/echarts/dist/echarts.min.js', 'utf8');
const notices = official.match(/\/\*[\s\S]*?\*\//g).filter((comment) => /licen[sc]e|copyright/i.test(comment));
if (notices.length !== 3) throw new Error(`${notices.length} notices in the official build: is one new?`);

const { outputFiles: [bundle] } = await build({
  entryPoints: ['charts.mjs'],
  write: false,
  bundle: true,
  minify: true,
  format: 'iife',
  globalName: 'echarts',
  target: 'es2020',
  banner: { js: notices.join('\n') },
  legalComments: 'none',
});

const hash = `sha256-${createHash('sha256').update(bundle.contents).digest('base64')}\n`;

if (process.argv.includes('--check')) {
  // Another zlib may deflate the same in other words.
  const made = inflateRawSync(await readFile(MADE));
  if (!made.equals(bundle.contents)) throw new Error('echarts.deflate is not what is made here: run npm run build');
  if ((await readFile(HASH, 'ascii')) !== hash) throw new Error('echarts.sha256.txt is of another library: run npm run build');
  console.log(`echarts.deflate is what is made here: ${bundle.contents.length} bytes`);
} else {
  const packed = deflateRawSync(bundle.contents, { level: constants.Z_BEST_COMPRESSION, memLevel: 9 });
  await writeFile(MADE, packed);
  await writeFile(HASH, hash);
  // In the format of sha256sum(1), which checks them without node.
  const sum = async (file) => `${createHash('sha256').update(await readFile(file)).digest('hex')}  ${file}\n`;
  await writeFile('SHA256SUMS', (await Promise.all([...FROM, MADE, HASH].map(sum))).join(''));
  console.log(`${bundle.contents.length} bytes, ${packed.length} deflated`);
}
