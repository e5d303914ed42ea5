package wire

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// These are bytes that protobuf's own library writes for Istio's messages (google.golang.org/protobuf 1.36.12).
func TestCertificatesAreWrittenAsProtobufWritesThem(t *testing.T) {
	request := CertificateRequest{CSR: "a PEM", Life: 90 * time.Second, Metadata: map[string]string{"ClusterID": "c1", Impersonated: "x"}}
	raw := request.Marshal()
	if want := "0a05612050454d185a22300a110a09436c7573746572494412041a0263310a1b0a14496d706572736f6e617465644964656e7469747912031a0178"; hex.EncodeToString(raw) != want {
		t.Errorf("the request is %x, want %s", raw, want)
	}
	if back, err := ParseCertificateRequest(raw); err != nil || !cmp.Equal(request, back) {
		t.Errorf("the request read back: %+v, %v", back, err)
	}
	response := CertificateResponse{Chain: []string{"leaf", "", "root"}}
	raw = response.Marshal()
	if want := "0a046c6561660a000a04726f6f74"; hex.EncodeToString(raw) != want {
		t.Errorf("the response is %x, want %s", raw, want)
	}
	if back, err := ParseCertificateResponse(raw); err != nil || !cmp.Equal(response, back) {
		t.Errorf("the response read back: %+v, %v", back, err)
	}
}

func TestCertificateRequestsAreRefused(t *testing.T) {
	tests := map[string]struct{ hex, want string }{
		"a tag that ends early":        {"80", "not a protobuf message"},
		"a text that ends early":       {"0a05616263", "not a protobuf message"},
		"a text that is not UTF-8":     {"0a02fffe", "not UTF-8"},
		"a field with number zero":     {"0200", "not a protobuf message"},
		"a negative life":              {"18ffffffffffffffffff01", "validity_duration: -1"},
		"a life of more than an int64": {"18ffffffffffffffff7f", "use 0 or more seconds"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			raw, err := hex.DecodeString(tt.hex)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := ParseCertificateRequest(raw); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseCertificateRequest = %v, %v, want an error with %q", r, err, tt.want)
			}
		})
	}
}

func FuzzCertificates(f *testing.F) {
	f.Add(CertificateRequest{CSR: "x", Life: time.Hour, Metadata: map[string]string{"a": "b"}}.Marshal())
	f.Add(CertificateResponse{Chain: []string{"a", "b"}}.Marshal())
	f.Add([]byte{0x0d, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if ours, err := ParseCertificateRequest(raw); err == nil {
			back, err := ParseCertificateRequest(ours.Marshal())
			if diff := cmp.Diff(ours, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("the request written again: %v\n%s", err, diff)
			}
		}
		if r, err := ParseCertificateResponse(raw); err == nil {
			if back, err := ParseCertificateResponse(r.Marshal()); err != nil || !cmp.Equal(r, back) {
				t.Errorf("the response written again: %v, %v", back, err)
			}
		}
	})
}
