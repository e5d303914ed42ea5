package webhook

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"
)

// TLS is the port's configuration: the certificate of the moment in each handshake, and
// no certificate asked of a client. An API server may have one for webhooks in general,
// which need not be of this mesh.
//
// The API server speaks HTTP/1.1 to webhooks (kubernetes apiserver,
// pkg/util/webhook/client.go), others may speak HTTP/2. There are no session tickets: a
// resumed connection would not look at the new certificate.
func TLS(certificate func() (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
	}
}

// Server is an HTTPS server for w; start it by ServeTLS with empty names of files. A
// client that says nothing is not waited for long.
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
