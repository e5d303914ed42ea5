package chain

import "testing"

// A program says that it was told to stop; a setting, or another one's signal, says nothing.
func TestStopping(t *testing.T) {
	for _, line := range []string{
		"Received TERM signal. Waiting up to 0s before terminating.", "received SIGTERM, shutting down", "worker: Warm shutdown (MainProcess)", `{"msg":"got signal","signal":"terminated"}`,
		"caught SIGTERM", "SIGTERM received", "signal received, draining", "Commencing graceful shutdown. Waiting for active requests to complete", "Server is shutting down", "Handling signal: term",
		"received shutdown signal", "initiating graceful shutdown", "Stopping server", "level=info msg=\"received signal\" signal=SIGTERM",
	} {
		if !stopping.MatchString(line) {
			t.Errorf("%q does not count", line)
		}
	}
	for _, line := range []string{
		"will drain on SIGTERM for 30s", "graceful shutdown timeout: 30s", "server.shutdown=graceful", "short term cache is warm", "received 12 terms", "terminating TLS at the edge", "got a connection", "--term_timeout=30s",
		"handled request /terms in 4ms", "upstream connect error or disconnect/reset before headers",
	} {
		if stopping.MatchString(line) {
			t.Errorf("%q counts", line)
		}
	}
}
