import logging, os, signal, sys, time, urllib.request

url, mode = os.environ["CONFIG_URL"], os.environ["MODE"]
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.Formatter.converter = time.gmtime
log = logging.getLogger("app")


def get():
    with urllib.request.urlopen(url, timeout=10) as r:
        return r.read()


def main():
    log.info("starting, configuration is at %s", url)
    while True:
        try:
            get()
            log.info("configuration loaded")
            break
        except Exception as e:
            if mode == "swallow":
                log.warning("no configuration from %s, defaults are used: %s", url, e)
                break
            if mode != "retry":
                raise
            log.error("no configuration from %s yet: %s", url, e)
            time.sleep(1)
    if mode == "crash":
        {}["pool_size"]
    if mode == "job":
        log.info("done, 14 records")
        return
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    while not stopping:
        time.sleep(0.2)
    log.info("stopping")
    for i in range(20 if mode == "calls" else 0):
        try:
            get()
        except Exception as e:
            log.error("flush %d to %s failed: %s", i, url, e)
        time.sleep(0.15)


main()
