package ca

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/base/wire"
)

// A Service implements Istio's IstioCertificateService.
type Service struct {
	Authority      *Authority
	Authenticators []Authenticator // tried in this order
	Log            *slog.Logger    // the audit log, without secrets; default: none
}

// Register adds the service to a gRPC server.
func (s *Service) Register(to grpc.ServiceRegistrar) {
	Method[wire.CertificateRequest, wire.CertificateResponse]{
		Service: wire.CertificateService, Name: wire.CertificateMethod,
		File:  "security/v1alpha1/ca.proto",
		Parse: wire.ParseCertificateRequest, Handle: s.CreateCertificate,
	}.Register(to)
}

// CreateCertificate signs the key in a request, for the caller's identity. Its error is a gRPC status.
func (s *Service) CreateCertificate(ctx context.Context, in wire.CertificateRequest) (wire.CertificateResponse, error) {
	log := cmp.Or(s.Log, slog.New(slog.DiscardHandler)).With("peer", peerAddress(ctx).String())
	cert, caller, err := s.create(ctx, in)
	if err != nil {
		log.Warn("certificate refused", "identity", name(caller), "method", caller.Method, "code", status.Code(err).String(), "reason", status.Convert(err).Message())
		return wire.CertificateResponse{}, err
	}
	log.Info("certificate signed", "identity", name(caller), "method", caller.Method, "pod", caller.Pod,
		"serial", cert.Leaf.SerialNumber.Text(16), "key", cert.Leaf.PublicKeyAlgorithm.String(), "not_after", cert.Leaf.NotAfter)
	return wire.CertificateResponse{Chain: cert.Chain}, nil
}

// name returns the caller's name for the log; it is empty for an unknown caller.
func name(c Caller) string {
	if c.Identity == (Identity{}) {
		return ""
	}
	return c.Identity.String()
}

func (s *Service) create(ctx context.Context, in wire.CertificateRequest) (*Certificate, Caller, error) {
	if s.Authority.External() { // checked before any credential is read or marked as used
		return nil, Caller{}, status.Error(codes.Unimplemented, errSignsNothing.Error()+": set its address (global.caAddress, CA_ADDR)")
	}
	caller, err := s.Authenticate(ctx)
	if err != nil {
		return nil, Caller{}, err
	}
	for _, key := range []string{wire.Impersonated, wire.CertSigner} {
		if in.Metadata[key] != "" {
			return nil, caller, status.Errorf(codes.PermissionDenied, "the request has metadata %s, which this control plane does not support", key)
		}
	}
	csr, err := parseCSR(in.CSR)
	if err != nil {
		return nil, caller, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := checkNames(csr, caller.Identity); err != nil {
		return nil, caller, status.Error(codes.PermissionDenied, err.Error())
	}
	if caller.Spend != nil {
		if err := caller.Spend(sha256.Sum256(csr.RawSubjectPublicKeyInfo)); err != nil {
			return nil, caller, s.refusal(err)
		}
	}
	cert, err := s.Authority.sign(csr.PublicKey, holder{Identity: caller.Identity, host: caller.Host}, in.Life)
	if err != nil {
		return nil, caller, status.Error(codes.Internal, err.Error())
	}
	return cert, caller, nil
}

// Authenticate returns the caller of a gRPC call. It does not mark the caller's credential as used. Its error
// is a gRPC status.
func (s *Service) Authenticate(ctx context.Context) (Caller, error) {
	token, err := bearer(ctx)
	if err != nil {
		return Caller{}, s.refusal(err)
	}
	caller, err := authenticate(ctx, s.Authenticators, Credentials{Bearer: token, Chain: peerCertificates(ctx)})
	if err != nil {
		return Caller{}, s.refusal(err)
	}
	return caller, nil
}

// refusal converts an error for the caller: a [Refusal] keeps its reason; any other error becomes
// Unavailable, and only the log has the details.
func (s *Service) refusal(err error) error {
	var r *Refusal
	if errors.As(err, &r) {
		return status.Error(codes.Unauthenticated, r.Reason)
	}
	if s.Log != nil {
		s.Log.Error("identity cannot be checked", "reason", err.Error())
	}
	return status.Error(codes.Unavailable, "the control plane cannot check identities now; try again")
}

// bearer returns the token of a call; empty if there is none.
func bearer(ctx context.Context) (string, error) {
	all := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(all) == 0 {
		return "", nil
	}
	scheme, token, ok := strings.Cut(all[0], " ")
	switch {
	case len(all) > 1:
		return "", refuse("the request has %d authorization headers; send one", len(all))
	case !ok || !strings.EqualFold(scheme, "Bearer") || token == "":
		return "", refuse("the authorization header is not of the form: Bearer <token>")
	case len(token) > maxToken:
		return "", refuse("the token has %d bytes; at most %d are read", len(token), maxToken)
	}
	return token, nil
}
