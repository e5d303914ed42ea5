// awesome-app, robust: it starts at once with the settings that are available locally, and uses
// those of the configuration server when they arrive.
import { readFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { env } from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { log, parse, refuse, serve, setLevel } from './app.mjs';

const embedded = 'level=INFO\n';
const limit = 2000, size = 64 << 10; // limits of one fetch, in milliseconds and in bytes
const first = 500, longest = 300_000; // longest pause before the first retry, which doubles, and its maximum, in milliseconds
const { CONFIG_URL: url = '', LAST_GOOD: lastGood = '' } = env;
const refresh = Number(env.REFRESH || 60);

let state = { level: '', source: '', error: '' };

/** Uses the settings of a document. If the document is bad, it throws, and the settings stay. */
function use(document, source) {
  const level = parse(document);
  if (level !== state.level || source !== state.source) log('INFO', 'log settings in use', { log_level: level, source });
  setLevel(level);
  state = { level, source, error: '' };
}

/** Returns the document, or throws if it exceeds the limits of time or size. */
async function fetchDocument() {
  // Once the request is garbage-collected, the signal no longer ends its body, so cancel the reader too.
  const end = new AbortController();
  let reader;
  const timer = setTimeout(() => {
    end.abort(new Error(`the centre has not answered within ${limit} ms`));
    reader?.cancel().catch(() => {}); // the pending read reports the error
  }, limit);
  try {
    const answer = await fetch(url, { signal: end.signal, redirect: 'error' });
    if (!answer.ok) {
      await answer.body?.cancel();
      throw new Error(`the centre answers ${answer.status} ${answer.statusText}`);
    }
    const chunks = [];
    reader = answer.body.getReader();
    for (let length = 0; ;) {
      const { done, value } = await reader.read();
      end.signal.throwIfAborted();
      if (done) return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
      length += value.length;
      if (length > size) throw new Error(`the answer has more than ${size} bytes`);
      chunks.push(value);
    }
  } finally {
    clearTimeout(timer);
    await reader?.cancel().catch(() => {});
  }
}

/** Stores the last good document. The file always contains the previous or the new one as a whole. */
async function keep(document) {
  if (!lastGood) return;
  try {
    await writeFile(`${lastGood}.tmp`, document);
    await rename(`${lastGood}.tmp`, lastGood);
  } catch (err) { // such as a full disk: the document is in use anyway
    log('WARN', `${lastGood} is not written`, { error: err.message });
  }
}

/** Fetches for ever. Pauses are random, so that processes that start together do not fetch together. */
async function follow() {
  for (let failures = 0; ;) {
    let pause = refresh * 1000 * (0.5 + Math.random());
    try {
      const document = await fetchDocument();
      use(document, 'provider');
      await keep(document);
      failures = 0;
    } catch (err) { // catches everything, because the loop must never end
      const error = err.cause?.message || err.cause?.code || err.message;
      log('WARN', 'log settings stay as they are', { url, error });
      state = { ...state, error };
      pause = Math.random() * Math.min(first * 2 ** failures, longest);
      failures += 1;
    }
    await sleep(pause);
  }
}

function start() {
  use(embedded, 'embedded');
  if (!lastGood) return;
  try {
    use(readFileSync(lastGood, 'utf8'), 'last good');
  } catch (err) {
    if (err.code !== 'ENOENT') log('WARN', `${lastGood} is passed over`, { error: err.message });
  }
}

if (url && !/^https?:\/\//.test(url)) refuse(`CONFIG_URL is "${url}"; it must begin with http:// or https://`);
if (!(Number.isInteger(refresh) && refresh >= 1 && refresh <= 9999)) refuse(`REFRESH is "${env.REFRESH}"; it must be a number of seconds, from 1 to 9999`);
log('INFO', 'starting awesome-app', { config: url });
start();
await serve(() => state);
if (url) await follow();
