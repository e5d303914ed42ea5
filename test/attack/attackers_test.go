package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/agent/harness"
)

// unlimited removes outriderd's memory limit from this process, which inherited it.
func unlimited() { debug.SetMemoryLimit(math.MaxInt64) }

// repeat calls the function act in a loop in each worker until ctx ends. Its text result contains the number of
// calls, the number of failed calls, and the error of the last of these.
func repeat(ctx context.Context, workers int, act func(ctx context.Context, worker int) error) (did string, err error) {
	var made, failed atomic.Int64
	var last atomic.Value
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				err := act(ctx, worker)
				if ctx.Err() != nil {
					return
				}
				made.Add(1)
				if err != nil {
					failed.Add(1)
					last.Store(err.Error())
					pause(ctx, 10*time.Millisecond) // without a pause, refused calls would use up the attacker's processor time
				}
			}
		})
	}
	all.Wait()
	did = fmt.Sprintf("%d by %d workers", made.Load(), workers)
	if text, ok := last.Load().(string); ok {
		did += fmt.Sprintf(", %d failed (%.200s)", failed.Load(), text)
	}
	return did, nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// n returns its first argument in the short form of the suite, and its second argument in the long form.
func (v victim) n(short, inFull int) int {
	if v.Long {
		return inFull
	}
	return short
}

func (v victim) at(port int) string { return net.JoinHostPort(v.Address, strconv.Itoa(port)) }

// tls returns the TLS configuration of a client without a certificate.
func (v victim) tls() (*tls.Config, error) {
	roots, err := os.ReadFile(v.Roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return nil, errors.New("no certificate in " + v.Roots)
	}
	return &tls.Config{RootCAs: pool, ServerName: harness.PlaneName}, nil
}

// holder returns the TLS configuration of a client that has the certificate of a workload, valid for a day.
func (v victim) holder(account string) (*tls.Config, error) { return v.holderFor(account, 0) }

// holderFor returns the TLS configuration of a client that has the certificate of a workload, with this lifetime; 0
// means a day.
func (v victim) holderFor(account string, life time.Duration) (*tls.Config, error) {
	config, err := v.tls()
	if err != nil {
		return nil, err
	}
	authority, err := ca.NewAuthority(context.Background(), ca.AuthorityOptions{Store: ca.Directory(filepath.Join(v.State, "ca")), TrustDomain: mesh.DefaultTrustDomain})
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signed, err := authority.Sign(&key.PublicKey, ca.Identity{TrustDomain: authority.TrustDomain(), Namespace: v.Namespace, ServiceAccount: account}, life)
	if err != nil {
		return nil, err
	}
	leaf, _ := pem.Decode([]byte(signed.Chain[0]))
	config.Certificates = []tls.Certificate{{PrivateKey: key, Certificate: [][]byte{leaf.Bytes}}}
	return config, nil
}

// token makes a token of a workload.
func (v victim) token(account string) (string, error) {
	tokens, err := ca.NewTokens(v.State, mesh.DefaultTrustDomain)
	if err != nil {
		return "", err
	}
	return tokens.Issue(ca.Claim{Namespace: v.Namespace, ServiceAccount: account}, time.Now())
}

// grpc opens a new connection to outriderd's port for configuration and certificates.
func (v victim) grpc(config *tls.Config, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+v.at(contract.SecureDiscoveryPort), append(more,
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))...)
}

// web returns an HTTP client for the webhook. The client has no certificate.
func (v victim) web() (*http.Client, error) {
	config, err := v.tls()
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 1000}}, nil
}
