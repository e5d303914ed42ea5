const http = require('http');
const url = process.env.CONFIG_URL, mode = process.env.MODE;
const log = (level, msg, more) => console.log(JSON.stringify({ level, time: Date.now(), pid: process.pid, msg, ...more }));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const get = () => new Promise((ok, bad) => {
  http.get(url, (r) => {
    let body = '';
    r.on('data', (d) => { body += d; });
    r.on('end', () => (r.statusCode === 200 ? ok(body) : bad(new Error(`GET ${url}: ${r.statusCode} ${body}`))));
  }).on('error', bad);
});

async function main() {
  log(30, 'starting', { config: url });
  for (;;) {
    try {
      await get();
      log(30, 'configuration loaded');
      break;
    } catch (err) {
      if (mode === 'swallow') { log(40, 'configuration not read, going on with defaults', { err: { message: err.message, code: err.code } }); break; }
      if (mode !== 'retry') throw err;
      log(50, 'no configuration yet', { err: { message: err.message, code: err.code } });
      await sleep(1000);
    }
  }
  if (mode === 'crash') { const config = {}; config.pool.size += 1; }
  if (mode === 'job') { log(30, 'done'); process.exit(0); }
  if (mode === 'calls') {
    process.on('SIGTERM', async () => {
      log(30, 'SIGTERM, flushing');
      for (let i = 0; i < 20; i += 1) {
        try { await get(); } catch (err) { log(50, 'flush failed', { err: { message: err.message, code: err.code } }); }
        await sleep(150);
      }
      process.exit(0);
    });
  }
  setInterval(() => {}, 1000);
}
main().catch((err) => { setImmediate(() => { throw err; }); });
