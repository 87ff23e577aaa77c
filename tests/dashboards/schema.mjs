/** Checks dashboards against dashboard.d.ts by the compiler of TypeScript: node schema.mjs DASHBOARD.json... */
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import ts from 'typescript';

const here = import.meta.dirname;
const sources = new Map(process.argv.slice(2).map((path) => {
  const text = `import type { KelvinDashboard } from './dashboard';\nexport const board: KelvinDashboard = ${readFileSync(path, 'utf8')};\n`;
  return [join(here, `${basename(path, '.json')}.checked.ts`), text];
}));
const options = { strict: true, noEmit: true, skipLibCheck: true, types: [], module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler };
const host = ts.createCompilerHost(options);
const read = (fallback) => (path, ...rest) => sources.get(path) ?? fallback.call(host, path, ...rest);
host.readFile = read(host.readFile);
const exists = host.fileExists;
host.fileExists = (path) => sources.has(path) || exists.call(host, path);
const source = host.getSourceFile;
host.getSourceFile = (path, target, ...rest) =>
  sources.has(path) ? ts.createSourceFile(path, sources.get(path), target) : source.call(host, path, target, ...rest);
// The types of this directory too: a type that is not found would allow anything.
const program = ts.createProgram([...sources.keys()], { ...options, skipLibCheck: false, skipDefaultLibCheck: true }, host);
const isOurs = ({ file }) => !file || !file.fileName.includes('/node_modules/');
const problems = ts.getPreEmitDiagnostics(program).filter(isOurs);
process.stderr.write(ts.formatDiagnostics(problems, { getCurrentDirectory: () => here, getCanonicalFileName: (name) => name, getNewLine: () => '\n' }));
process.exit(problems.length > 0 ? 1 : 0);
