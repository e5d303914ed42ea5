<?php
date_default_timezone_set('UTC');
[$url, $mode] = [getenv('CONFIG_URL'), getenv('MODE')];
function say($level, $text) { echo '[' . date('Y-m-d\TH:i:s.vP') . "] app.$level: $text\n"; }
function get($url) {
    $body = @file_get_contents($url, false, stream_context_create(['http' => ['ignore_errors' => true]]));
    if ($body === false) throw new RuntimeException(error_get_last()['message']);
    if (!str_contains($http_response_header[0], ' 200 ')) throw new RuntimeException("$url: $http_response_header[0]: $body");
}
say('INFO', "starting with $url");
while (true) {
    try {
        get($url);
        say('INFO', 'configuration loaded');
        break;
    } catch (RuntimeException $e) {
        if ($mode === 'swallow') { say('WARNING', 'no configuration: ' . $e->getMessage()); break; }
        if ($mode !== 'retry') throw $e;
        say('ERROR', $e->getMessage());
        sleep(1);
    }
}
if ($mode === 'crash') intdiv(1, strlen(''));
if ($mode === 'job') { say('INFO', 'done'); exit(0); }
sleep(600);
