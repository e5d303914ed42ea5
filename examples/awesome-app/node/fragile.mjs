// awesome-app as many applications are: it fetches its log settings once, at its start, and exits
// if that fails.
import { env } from 'node:process';
import { log, parse, serve, setLevel } from './app.mjs';

const url = env.CONFIG_URL;
log('INFO', 'starting awesome-app', { config: url });
const answer = await fetch(url); // the fault: no second try, no limit of time, nothing to go on with
if (!answer.ok) throw new Error(`GET ${url}: ${answer.status} ${answer.statusText}`);
const level = parse(await answer.text());
setLevel(level);
await serve(() => ({ level, source: 'provider', error: '' }));
