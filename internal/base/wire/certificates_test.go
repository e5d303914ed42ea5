package wire

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// messages returns Istio's messages as protobuf's own library describes them.
func messages(t testing.TB) (request, response protoreflect.MessageDescriptor) {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, repeated bool, typ string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if repeated {
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}
		if typ != "" {
			f.TypeName = &typ
		}
		return f
	}
	const text, number, message = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_INT64, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("ca.proto"), Package: proto.String("istio.v1.auth"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/struct.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("IstioCertificateRequest"), Field: []*descriptorpb.FieldDescriptorProto{
				field("csr", 1, text, false, ""), field("validity_duration", 3, number, false, ""),
				field("metadata", 4, message, false, ".google.protobuf.Struct"),
			}},
			{Name: proto.String("IstioCertificateResponse"), Field: []*descriptorpb.FieldDescriptorProto{field("cert_chain", 1, text, true, "")}},
		},
	}, registry{})
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().Get(0), file.Messages().Get(1)
}

// registry resolves the only file that Istio's definition imports.
type registry struct{}

func (registry) FindFileByPath(string) (protoreflect.FileDescriptor, error) {
	return structpb.File_google_protobuf_struct_proto, nil
}

func (registry) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return structpb.File_google_protobuf_struct_proto.Messages().ByName(name.Name()), nil
}

func TestProtobufReadsACertificateRequest(t *testing.T) {
	kind, _ := messages(t)
	sent := CertificateRequest{CSR: "a PEM", Life: 90 * time.Second, Metadata: map[string]string{"ClusterID": "c1", Impersonated: "x"}}
	m := dynamicpb.NewMessage(kind)
	if err := proto.Unmarshal(sent.Marshal(), m); err != nil {
		t.Fatal(err)
	}
	if got := m.Get(kind.Fields().ByNumber(1)).String(); got != "a PEM" {
		t.Errorf("csr is %q", got)
	}
	if got := m.Get(kind.Fields().ByNumber(3)).Int(); got != 90 {
		t.Errorf("validity_duration is %d", got)
	}
	if len(m.GetUnknown()) > 0 {
		t.Errorf("fields that the message does not have: %x", m.GetUnknown())
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseCertificateRequest(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, back); diff != "" {
		t.Errorf("the request read back (-sent +back):\n%s", diff)
	}
}

func TestProtobufReadsACertificateResponse(t *testing.T) {
	_, kind := messages(t)
	sent := CertificateResponse{Chain: []string{"leaf", "", "root"}}
	m := dynamicpb.NewMessage(kind)
	if err := proto.Unmarshal(sent.Marshal(), m); err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseCertificateResponse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, back); diff != "" {
		t.Errorf("the response read back (-sent +back):\n%s", diff)
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

// unmarshal calls protobuf's own library, which panics for a map whose key is a group (protobuf-go 1.36.12,
// for dynamic messages).
func unmarshal(raw []byte, m proto.Message) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return proto.Unmarshal(raw, m)
}

func FuzzCertificates(f *testing.F) {
	f.Add(CertificateRequest{CSR: "x", Life: time.Hour, Metadata: map[string]string{"a": "b"}}.Marshal())
	f.Add(CertificateResponse{Chain: []string{"a", "b"}}.Marshal())
	f.Add([]byte{0x0d, 1, 2, 3, 4})
	kind, _ := messages(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		ours, err := ParseCertificateRequest(raw)
		m := dynamicpb.NewMessage(kind)
		if theirs := unmarshal(raw, m); err == nil && theirs == nil {
			if got := m.Get(kind.Fields().ByNumber(1)).String(); got != ours.CSR {
				t.Errorf("csr is %q, protobuf reads %q", ours.CSR, got)
			}
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
