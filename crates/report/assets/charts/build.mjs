// Makes ../echarts.deflate.txt: `npm ci && npm run build` in this directory.
import { build } from 'esbuild';
import { readFile, writeFile } from 'node:fs/promises';
import { constants, deflateRawSync } from 'node:zlib';

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
const packed = deflateRawSync(bundle.contents, { level: constants.Z_BEST_COMPRESSION, memLevel: 9 });
await writeFile('../echarts.deflate.txt', packed.toString('base64'));
console.log(`${bundle.contents.length} bytes, ${packed.length} deflated`);
