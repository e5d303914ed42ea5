package webhook

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"
)

// TLS is the port's configuration. Each handshake takes the current certificate. No client
// certificate is requested: that of an API server need not be of this mesh.
//
// The API server speaks HTTP/1.1 to webhooks (kubernetes apiserver,
// pkg/util/webhook/client.go), other clients may speak HTTP/2. There are no session tickets,
// since a resumed connection does not see a new certificate.
func TLS(certificate func() (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
	}
}

// Server is an HTTPS server for w; start it by ServeTLS with empty names of files. Silent
// clients are disconnected.
func (w *Webhook) Server(certificate func() (*tls.Certificate, error)) *http.Server {
	return &http.Server{
		Handler:           w,
		TLSConfig:         TLS(certificate),
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      w.o.Limits.Timeout + 10*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(w.o.Log.Handler(), slog.LevelDebug),
	}
}
