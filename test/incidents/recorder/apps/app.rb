require 'logger'
require 'net/http'
$stdout.sync = true
LOG = Logger.new($stdout)
URL, MODE = ENV['CONFIG_URL'], ENV['MODE']

def get
  r = Net::HTTP.get_response(URI(URL))
  raise "GET #{URL}: #{r.code} #{r.body}" unless r.code == '200'
end

LOG.info("starting, configuration: #{URL}")
begin
  get
  LOG.info('configuration loaded')
rescue StandardError => e
  if MODE == 'swallow'
    LOG.warn("configuration skipped: #{e.class}: #{e.message}")
  elsif MODE == 'retry'
    LOG.error("#{e.class}: #{e.message}")
    sleep 1
    retry
  else
    raise
  end
end
nil.fetch(:pool) if MODE == 'crash'
exit 0 if MODE == 'job'
trap('TERM') { exit 0 }
sleep
