#!/bin/sh
# A front end whose back end is the configuration service; its own check calls that once.
address=${CONFIG_URL#http://} address=${address%%/*}
pool=
[ "$MODE" = crash ] && pool="pool_size 8k;"
cat > /tmp/nginx.conf <<END
daemon off; master_process off; pid /tmp/nginx.pid; error_log /dev/stderr; $pool
events {}
http {
  access_log /dev/stdout; client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f; uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
  server { listen 8080; location / { proxy_pass http://$address; } }
}
END
(sleep 0.5; curl -s -o /dev/null http://127.0.0.1:8080/config) &
exec nginx -e stderr -c /tmp/nginx.conf
