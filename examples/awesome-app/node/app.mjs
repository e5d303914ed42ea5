// The parts of awesome-app that do not fetch settings: it logs, and serves.
// ../README.md describes the behaviour in all languages.
import { createServer } from 'node:http';
import { env, pid } from 'node:process';

const levels = ['DEBUG', 'INFO', 'WARN', 'ERROR'];
let least = 'INFO';

export const setLevel = (level) => { least = level; };

export function log(level, msg, more) {
  if (levels.indexOf(level) >= levels.indexOf(least)) {
    console.log(JSON.stringify({ level, time: new Date().toISOString(), pid, msg, ...more }));
  }
}

/** Returns the level in a document with lines of the form key=value. */
export function parse(document) {
  const fields = new Map(document.split('\n').map((line) => line.trim().split('=', 2)));
  if (!fields.has('level')) throw new Error('the document has no level');
  const level = fields.get('level');
  if (!levels.includes(level)) throw new Error(`level is "${level}"; it must be DEBUG, INFO, WARN or ERROR`);
  return level;
}

/** Ends the program because an environment variable is invalid. */
export function refuse(error) {
  log('ERROR', 'awesome-app cannot start', { error });
  process.exit(2);
}

/** Serves until SIGTERM. Resolves when it listens. state() must return the present { level, source, error }. */
export function serve(state) {
  const pages = {
    '/healthz': () => 'ok\n',
    '/settings': () => Object.entries(state()).map(([key, value]) => `${key}=${value}\n`).join(''),
  };
  const server = createServer((request, response) => {
    log('DEBUG', 'request', { path: request.url });
    const page = Object.hasOwn(pages, request.url) ? pages[request.url] : undefined;
    response.statusCode = page ? 200 : 404;
    response.end(page ? page() : 'not found\n');
  });
  process.on('SIGTERM', () => process.exit(0)); // process 1 of a container ignores SIGTERM without a handler
  return new Promise((done) => {
    server.listen(Number(env.PORT || 8080), () => {
      log('INFO', 'awesome-app is ready', { port: server.address().port });
      done();
    });
  });
}
